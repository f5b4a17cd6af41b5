#include "client/cli/local_coordinator.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/process/process_stat.h"
#include "common/process/stop_signals.h"
#include "common/rpc/address.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::cli {
namespace {

constexpr char kPrefix[] = "muster-run-";
constexpr char kOwner[] = "owner";
// The lock of musterd, which ends a moment after a killed run.
constexpr char kDaemonLock[] = "lock";

// Opens and locks the file. Without a descriptor if there is no file, or another process has the
// lock.
process::Fd Lock(const std::string& path, int flags) {
  process::Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (file.get() >= 0 && flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  return process::Fd();
}

// Returns whether the directory is this user's own, and not a link.
bool IsOwn(const std::string& directory) {
  struct stat info;
  return lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

// Returns whether a musterd works with this state directory.
bool IsInUse(const std::string& state) {
  const std::string lock = files::JoinPath(state, kDaemonLock);
  return Exists(lock) && Lock(lock, 0).get() < 0;
}

void RemoveLeftovers(const std::string& root) {
  std::error_code error;
  // A range-based loop would throw if the directory cannot be read to its end.
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    if (it->path().filename().string().rfind(kPrefix, 0) != 0 || !IsOwn(path)) continue;
    // A directory without the file `owner` is just being created.
    const process::Fd owner = Lock(files::JoinPath(path, kOwner), 0);
    if (owner.get() < 0) continue;
    const std::string daemon = files::JoinPath(path, kDaemonLock);
    const process::Fd daemon_lock = Lock(daemon, 0);
    if (daemon_lock.get() < 0 && Exists(daemon)) continue;
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TemporaryState>> TemporaryState::Create(const std::string& wanted) {
  const std::string root =
      SocketFits(files::JoinPath(wanted, absl::StrCat(kPrefix, "XXXXXX"))) ? wanted : "/tmp";
  RemoveLeftovers(root);
  // Another run that starts at the same time may remove the file `owner` before this run has locked
  // the file. Then this run makes a new directory.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = files::JoinPath(root, absl::StrCat(kPrefix, "XXXXXX"));
    if (mkdtemp(path.data()) == nullptr) {
      return absl::InternalError(
          absl::StrCat("cannot make a directory in ", root, ": ", strerror(errno)));
    }
    const std::string owner_file = files::JoinPath(path, kOwner);
    process::Fd owner = Lock(owner_file, O_CREAT);
    if (owner.get() >= 0 && Exists(owner_file)) {
      return std::unique_ptr<TemporaryState>(new TemporaryState(std::move(path), std::move(owner)));
    }
  }
  return absl::InternalError(absl::StrCat("cannot lock a file in a directory of ", root));
}

TemporaryState::~TemporaryState() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
// The time to stop: more than musterd needs to end its agent, and the agent to end its workers,
// each with its own grace.
constexpr absl::Duration kStopTimeout = absl::Seconds(30);
constexpr absl::Duration kShortStopTimeout = absl::Seconds(3);
constexpr absl::Duration kPoll = absl::Milliseconds(20);

bool IsProgram(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

absl::StatusOr<std::string> FindMusterd(const std::string& bin_dir) {
  std::vector<std::string> places;
  if (!bin_dir.empty()) {
    places = {bin_dir};
  } else {
    std::error_code error;
    const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    places = {here.string(), (here / "../../coordinator").lexically_normal().string()};
  }
  for (const std::string& place : places) {
    const std::string program = files::JoinPath(place, "musterd");
    if (IsProgram(program)) return program;
  }
  std::string message = absl::StrCat("there is no program musterd in ", places[0]);
  if (places.size() > 1) absl::StrAppend(&message, " (nor in ", places[1], ")");
  return absl::NotFoundError(absl::StrCat(message, "; MUSTER_BIN_DIR may name its folder"));
}

LocalCoordinator::LocalCoordinator(std::string state_directory,
                                   std::unique_ptr<TemporaryState> temporary)
    : state_directory_(std::move(state_directory)), temporary_(std::move(temporary)) {}

absl::StatusOr<std::unique_ptr<LocalCoordinator>> LocalCoordinator::Start(
    const LocalCoordinatorOptions& options, const client::Cancellation& interrupted) {
  std::string state = options.state_directory;
  std::unique_ptr<TemporaryState> temporary;
  if (state.empty()) {
    ASSIGN_OR_RETURN(temporary, TemporaryState::Create(options.temporary_root));
    state = temporary->path();
  } else {
    // musterd makes the directory, too, but its log must be there before.
    RETURN_IF_ERROR(
        Annotate(files::MakePrivateDirectory(state, {"muster.db", "*.log"}), "--state"));
    // Absolute paths make the coordinator's messages clear; the current folder is the same.
    state = std::filesystem::absolute(state).lexically_normal().string();
    if (IsInUse(state)) {
      return absl::FailedPreconditionError(
          absl::StrCat("--state: ", state,
                       " is in use by another run or musterd; wait until it has ended, or choose "
                       "another directory. Commands reach its job with MUSTER_ADDRESS=",
                       state));
    }
  }
  std::unique_ptr<LocalCoordinator> coordinator(new LocalCoordinator(state, std::move(temporary)));
  RETURN_IF_ERROR(coordinator->Launch(options, interrupted));
  coordinator->watcher_ = std::thread([process = coordinator->process_.get(), options] {
    process->Wait(absl::InfiniteDuration());
    options.on_end();
  });
  return coordinator;
}

absl::Status LocalCoordinator::Launch(const LocalCoordinatorOptions& options,
                                      const client::Cancellation& interrupted) {
  const std::string port_file = files::JoinPath(state_directory_, "address");
  std::error_code ignored;
  std::filesystem::remove(port_file, ignored);  // of an earlier run
  const std::string log = files::JoinPath(state_directory_, "musterd.log");
  RETURN_IF_ERROR(files::MakePrivateLog(log));
  // The shell only redirects its output to a file, and becomes musterd.
  ASSIGN_OR_RETURN(
      process_,
      spawner_.Spawn(
          {.argv = {"/bin/sh", "-c", "exec \"$@\" >>\"$0\" 2>&1", log, options.program, "--state",
                    state_directory_, "--local-slots", absl::StrCat(options.slots),
                    // This coordinator is not started again, so its workers end with their lease.
                    "--autonomy", "0s"},
           .grouping = process::Grouping::kOwnGroup,
           .parent_death_signal = SIGTERM}));
  const absl::Time deadline = SteadyNow() + kStartTimeout;
  while (true) {
    // The coordinator writes the file in one step.
    const auto address = files::ReadFile(port_file);
    if (address.ok()) {
      address_ = address->substr(0, address->find('\n'));
      return absl::OkStatus();
    }
    if (interrupted.cancelled()) return absl::CancelledError("interrupted");
    if (const auto exit = process_->Wait(kPoll); exit.has_value()) {
      // The signal went to all processes of the run, before musterd could handle it.
      const auto& signals = process::PreemptionSignals();
      if (std::find(signals.begin(), signals.end(), exit->signal) != signals.end()) {
        return absl::CancelledError(exit->ToString());
      }
      return absl::UnavailableError(absl::StrCat("the coordinator (", options.program,
                                                 ") ended with ", exit->ToString(), ":\n",
                                                 LogTail()));
    }
    if (SteadyNow() > deadline) {
      return absl::UnavailableError(
          absl::StrCat("the coordinator (", options.program, ") does not listen after ",
                       absl::FormatDuration(kStartTimeout), ":\n", LogTail()));
    }
  }
}

LocalCoordinator::~LocalCoordinator() {
  Stop([] { return false; });
}

std::string LocalCoordinator::LogTail() const {
  constexpr size_t kLines = 10;
  std::ifstream log(files::JoinPath(state_directory_, "musterd.log"));
  std::deque<std::string> lines;
  for (std::string line; std::getline(log, line);) {
    lines.push_back(line);
    if (lines.size() > kLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", line, "\n");
  return text;
}

void LocalCoordinator::Stop(const std::function<bool()>& hurry) {
  if (stopped_) return;
  stopped_ = true;
  if (process_ != nullptr) {
    process_->Signal(SIGTERM);
    absl::Time deadline = SteadyNow() + kStopTimeout;
    bool hurried = false;
    std::optional<process::Exit> exit;
    while (!(exit = process_->Wait(kPoll)).has_value() && SteadyNow() < deadline) {
      if (hurried || !hurry()) continue;
      hurried = true;
      process_->Signal(SIGQUIT);
      deadline = std::min(deadline, SteadyNow() + kShortStopTimeout);
    }
    if (!exit.has_value()) {
      process_->Signal(SIGKILL);
      exit = process_->Wait(absl::InfiniteDuration());
    }
    // A coordinator that ended normally has ended its agent.
    if (*exit != process::Exit{}) KillAgent();
  }
  if (watcher_.joinable()) watcher_.join();
  temporary_.reset();
}

void LocalCoordinator::KillAgent() {
  // The record may be that of another coordinator, which has refused this one.
  if (IsInUse(state_directory_)) return;
  std::ifstream record(files::JoinPath(state_directory_, "local-agent.pid"));
  pid_t pid = 0;
  uint64_t start_time = 0;
  if (!(record >> pid >> start_time) || pid <= 1) return;
  const process::Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // The check comes after the descriptor is open: a descriptor refers to one process even if the id
  // is used again.
  const auto stat = process::ReadProcessStat(pid);
  if (pidfd.get() < 0 || !stat.ok() || stat->start_time != start_time) return;
  // The agent's workers end with the agent.
  syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(kShortStopTimeout)));
}

}  // namespace muster::cli
