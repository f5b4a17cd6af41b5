#include "worker/agent/spool_folder.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/spool/spool.h"
#include "common/status/status.h"
#include "worker/agent/wire.h"

namespace muster::agent {
namespace {

constexpr char kEnding[] = ".reports";

// The approximate number of bytes of reports in a message.
constexpr size_t kMessageBytes = 1 << 20;

// The time until the next attempt to read a file that could not be read.
constexpr absl::Duration kReadAgain = absl::Seconds(5);

}  // namespace

absl::Status SpoolFolder::Open() {
  if (path_.empty()) return absl::OkStatus();
  // The lease file of the agent (common/lease/lease_file.h) lies in this folder, too.
  const absl::Status made =
      files::MakePrivateDirectory(path_, {absl::StrCat("*", kEnding, "*"), "lease"});
  if (!made.ok()) {
    path_.clear();
    return made;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    const std::string path = entry.path().string();
    if (absl::StrContains(path, absl::StrCat(kEnding, ".tmp"))) unlink(path.c_str());
  }
  return absl::OkStatus();
}

std::string SpoolFolder::PathOf(const WorkerId& worker) const {
  const std::string& name = worker.incarnation;
  const bool plain = !name.empty() && name.size() <= 100 &&
                     std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '-'; });
  return path_.empty() || !plain ? "" : files::JoinPath(path_, absl::StrCat(name, kEnding));
}

std::map<std::string, std::string> SpoolFolder::Environment(const WorkerId& worker,
                                                            size_t limit) const {
  const std::string path = PathOf(worker);
  if (path.empty()) return {};
  return {{kSpoolVariable, std::filesystem::absolute(path).string()},
          {kSpoolLimitVariable, absl::StrCat(limit)}};
}

std::vector<WorkerId> SpoolFolder::List() const {
  std::vector<WorkerId> workers;
  if (path_.empty()) return workers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    const std::string path = entry.path().string();
    if (!absl::EndsWith(path, kEnding)) continue;
    const auto spooled = ReadSpool(path);
    if (!spooled.ok() && !absl::IsDataLoss(spooled.status())) {
      spdlog::error("reports of a worker cannot be sent now: {}", Message(spooled.status()));
      continue;
    }
    if (spooled.ok() && spooled->reports.empty()) {
      unlink(path.c_str());
      continue;
    }
    v1::WorkerIdentity worker;
    if (!spooled.ok() || !worker.ParseFromString(spooled->worker) ||
        PathOf(FromWire(worker)) != path) {
      spdlog::warn("{} holds no worker's reports: renamed to {}.bad", path, path);
      rename(path.c_str(), absl::StrCat(path, ".bad").c_str());
      continue;
    }
    workers.push_back(FromWire(worker));
  }
  return workers;
}

bool SpoolFolder::Has(const WorkerId& worker) const {
  const std::string path = PathOf(worker);
  return !path.empty() && access(path.c_str(), F_OK) == 0;
}

absl::StatusOr<std::vector<std::string>> SpoolFolder::Read(const WorkerId& worker) const {
  const std::string path = PathOf(worker);
  if (path.empty()) return std::vector<std::string>();
  auto spooled = ReadSpool(path);
  if (spooled.ok()) return std::move(spooled->reports);
  if (absl::IsNotFound(spooled.status())) return std::vector<std::string>();
  if (!absl::IsDataLoss(spooled.status())) return spooled.status();
  spdlog::error("{}: renamed to {}.bad", Message(spooled.status()), path);
  rename(path.c_str(), absl::StrCat(path, ".bad").c_str());
  return std::vector<std::string>();
}

void SpoolFolder::Remove(const WorkerId& worker) const {
  const std::string path = PathOf(worker);
  if (!path.empty()) unlink(path.c_str());
}

bool SpoolReplay::Begin(const WorkerId& worker, absl::Time now) {
  auto reports = folder_.Read(worker);
  if (!reports.ok()) {
    spdlog::error("reports of {} cannot be sent now: {}", worker.ToString(),
                  Message(reports.status()));
    unread_.insert(worker);
    read_again_at_ = now + kReadAgain;
    return false;
  }
  replays_[worker] = Replay{.reports = *std::move(reports)};
  return true;
}

std::optional<v1::AgentMessage> SpoolReplay::Next(const WorkerId& worker) {
  Replay& replay = replays_.at(worker);
  v1::AgentMessage message;
  auto* reports = message.mutable_spooled_reports();
  *reports->mutable_worker() = ToWire(worker);
  for (size_t bytes = 0; replay.next < replay.reports.size() && bytes < kMessageBytes;) {
    std::string& report = replay.reports[replay.next++];
    bytes += report.size();
    *reports->add_reports() = std::move(report);
  }
  if (!reports->reports().empty()) return message;
  folder_.Remove(worker);
  replays_.erase(worker);
  return std::nullopt;
}

std::set<WorkerId> SpoolReplay::TakeUnread() {
  read_again_at_ = absl::InfiniteFuture();
  return std::exchange(unread_, {});
}

void SpoolReplay::Reset() {
  replays_.clear();
  unread_.clear();
  read_again_at_ = absl::InfiniteFuture();
}

}  // namespace muster::agent
