#include "coordinator/launch/local_agent.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/process/process_stat.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::launch {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(10);
// The lifetime of an agent after which its end is no failed start.
constexpr absl::Duration kGoodLife = absl::Seconds(30);

int Millis(absl::Duration d) { return static_cast<int>(absl::ToInt64Milliseconds(d)); }

// Returns the last line of a file, at most 2000 characters; empty if there is none.
std::string LastLine(const std::string& path) {
  std::ifstream file(path, std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(0, size - 2000));
  std::string line, last;
  while (std::getline(file, line)) last = line;
  return last;
}

bool Readable(int fd, absl::Duration timeout) {
  pollfd entry{.fd = fd, .events = POLLIN};
  return poll(&entry, 1, Millis(timeout)) > 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalAgent>> LocalAgent::Start(const LocalAgentOptions& options) {
  std::unique_ptr<LocalAgent> self(new LocalAgent(options));
  self->stop_ = process::Fd(eventfd(0, EFD_CLOEXEC));
  self->Adopt();
  if (self->adopted_.get() < 0) RETURN_IF_ERROR(self->Launch());
  self->watcher_ = std::thread([raw = self.get()] { raw->Watch(); });
  return self;
}

void LocalAgent::Leave() {
  if (!watcher_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  watcher_.join();
}

bool LocalAgent::HasEnded() const {
  return Watched() < 0 || Readable(Watched(), absl::ZeroDuration());
}

void LocalAgent::Signal(int signal) {
  if (Watched() >= 0) syscall(SYS_pidfd_send_signal, Watched(), signal, nullptr, 0);
}

LocalAgent::~LocalAgent() {
  Leave();
  if (process_ != nullptr) process_->Stop(options_.grace);
  EndAdopted();
  std::error_code error;
  std::filesystem::remove(RecordPath(), error);
}

absl::StatusOr<LocalAgent::Record> LocalAgent::ReadRecord() const {
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(RecordPath()));
  std::istringstream fields(text);
  Record record;
  fields >> record.pid >> record.start_time >> record.coordinator >> record.slots;
  if (fields.fail() || record.pid <= 0) {
    return absl::DataLossError(absl::StrCat(RecordPath(), " cannot be read"));
  }
  std::getline(fields, record.more);
  return record;
}

std::string LocalAgent::More() const {
  std::string more;
  for (const std::string& argument : options_.more) {
    absl::StrAppend(&more, " \"", absl::CHexEscape(argument), "\"");
  }
  return more;
}

absl::Status LocalAgent::WriteRecord(pid_t pid) const {
  ASSIGN_OR_RETURN(const process::ProcessStat stat, process::ReadProcessStat(pid));
  return files::WritePrivately(
      RecordPath(), absl::StrCat(pid, " ", stat.start_time, " ", options_.coordinator, " ",
                                 options_.slots, More(), "\n"));
}

void LocalAgent::Adopt() {
  const auto record = ReadRecord();
  if (!record.ok()) return;
  process::Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, record->pid, 0)));
  // The number is certain only after the descriptor holds the process.
  if (pidfd.get() < 0) return;
  const auto stat = process::ReadProcessStat(record->pid);
  if (!stat.ok() || stat->start_time != record->start_time) return;
  adopted_ = std::move(pidfd);
  if (record->coordinator == options_.coordinator && record->slots == options_.slots &&
      record->more == More()) {
    spdlog::info("the local agent (process {}) still runs", record->pid);
    return;
  }
  spdlog::info("the local agent (process {}) was started for {} with {} slots{}{}: ending it",
               record->pid, record->coordinator, record->slots, record->more.empty() ? "" : " and",
               record->more);
  EndAdopted();
}

void LocalAgent::EndAdopted() {
  const int pidfd = adopted_.get();
  if (pidfd < 0) return;
  syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, nullptr, 0);
  if (!Readable(pidfd, options_.grace)) {
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
    Readable(pidfd, options_.grace);
  }
  adopted_ = process::Fd();
}

absl::Status LocalAgent::Launch() {
  // The agent's output goes to a file: a pipe to this process would break when this process is
  // killed.
  RETURN_IF_ERROR(files::MakePrivateLog(LogPath()));
  process::SpawnOptions spawn;
  spawn.argv = {"/bin/sh",
                "-c",
                "exec \"$@\" >>\"$0\" 2>&1",
                LogPath(),
                options_.program,
                "--coordinator",
                options_.coordinator,
                "--slots",
                absl::StrCat(options_.slots),
                "--node",
                kLocalNode,
                "--state",
                absl::StrCat(options_.state_directory, "/local-agent"),
                "--spool",
                absl::StrCat(options_.state_directory, "/local-agent/spool"),
                "--exit-with-lease"};
  spawn.argv.insert(spawn.argv.end(), options_.more.begin(), options_.more.end());
  spawn.grouping = process::Grouping::kOwnSession;
  if (access(options_.program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(
        options_.program, " does not exist or cannot be executed; --agent names the program"));
  }
  ASSIGN_OR_RETURN(process_, spawner_.Spawn(spawn));
  if (const absl::Status written = WriteRecord(process_->pid()); !written.ok()) {
    // The agent runs, but the next musterd will not find it.
    spdlog::warn("the local agent's process id could not be written: {}", Message(written));
  }
  return absl::OkStatus();
}

void LocalAgent::Watch() {
  absl::Duration pause = kFirstPause;
  absl::Time born = SteadyNow();
  while (true) {
    pollfd entries[] = {{.fd = stop_.get(), .events = POLLIN}, {.fd = Watched(), .events = POLLIN}};
    // Without a process (it could not be started) the loop only waits for the pause.
    const bool alive = entries[1].fd >= 0;
    if (alive) poll(entries, 2, -1);
    if (entries[0].revents != 0) return;
    if (alive) {
      std::string how = "ended";
      if (process_ != nullptr) {
        const auto exit = process_->Wait(absl::InfiniteDuration());
        how = exit.has_value() ? exit->ToString() : how;
      }
      spdlog::warn("the local agent: {}; starting it again; the last line of {}: {}", how,
                   LogPath(), LastLine(LogPath()));
      process_.reset();
      adopted_ = process::Fd();
      if (SteadyNow() - born > kGoodLife) pause = kFirstPause;
    }
    if (Readable(stop_.get(), pause)) return;
    pause = std::min(2 * pause, kLongestPause);
    born = SteadyNow();
    if (const absl::Status status = Launch(); !status.ok()) {
      spdlog::error("the local agent cannot be started: {}", Message(status));
    }
  }
}

}  // namespace muster::launch
