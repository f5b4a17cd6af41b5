#include "worker/agent/spool_replay.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/status/status.h"
#include "worker/agent/wire.h"

namespace muster::agent {
namespace {

// About how many bytes of reports one message has.
constexpr size_t kMessageBytes = 1 << 20;

// The time until a file that could not be read is read again.
constexpr absl::Duration kReadAgain = absl::Seconds(5);

}  // namespace

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
