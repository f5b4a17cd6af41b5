// The private coordinator of `muster run`: a musterd with local slots, as a child process.
#ifndef MUSTER_CLIENT_CLI_LOCAL_COORDINATOR_H_
#define MUSTER_CLIENT_CLI_LOCAL_COORDINATOR_H_

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/api/cancellation.h"
#include "common/process/fd.h"
#include "common/process/process.h"

namespace muster::cli {

// The state directory of a `muster run` without --state: made under $TMPDIR, and removed after the
// run. The directory of a killed run is removed by the next run. The coordinator's socket is always
// in this directory, and is removed with the directory.
//
// A directory ROOT/muster-run-XXXXXX (mode 0700) with a file `owner` that is locked while this
// object lives: the kernel frees the lock of a process that is killed. Where the path of a socket
// in it would be too long, it is made in /tmp instead of ROOT.
class TemporaryState {
 public:
  // First removes the directories of killed runs: directories of this user with such a name in
  // which neither `owner` nor musterd's own `lock` is locked. INTERNAL: the directory cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<TemporaryState>> Create(const std::string& root);
  // Removes it.
  ~TemporaryState();

  const std::string& path() const { return path_; }

 private:
  TemporaryState(std::string path, process::Fd owner)
      : path_(std::move(path)), owner_(std::move(owner)) {}

  const std::string path_;
  const process::Fd owner_;
};

// The path of the musterd program: in `bin_dir` if it is given ($MUSTER_BIN_DIR), or else beside
// this program, or else where Bazel builds it. NOT_FOUND: the message names the paths that were
// tried.
absl::StatusOr<std::string> FindMusterd(const std::string& bin_dir);

struct LocalCoordinatorOptions {
  // The result of FindMusterd.
  std::string program;
  uint32_t slots = 1;
  // It is kept after the run. Empty: a directory under $TMPDIR or /tmp, which is removed after the
  // run, or by the next run if this one is killed.
  std::string state_directory;
  std::string temporary_root = "/tmp";
  // Called once, on another thread, when the coordinator has ended, whether asked to or not; not
  // after Stop has returned.
  std::function<void()> on_end = [] {};
};

// Life cycle: Start, then Stop or the destructor, after which no process is left. Thread-safe:
// Exited, Leave.
class LocalCoordinator {
 public:
  // Returns once it listens. CANCELLED: `interrupted`, or a signal has ended it that may have been
  // sent to all processes of this run.
  // UNAVAILABLE: it ended; the message has its last log lines. Other errors: it cannot be started,
  // or its directory cannot be made.
  static absl::StatusOr<std::unique_ptr<LocalCoordinator>> Start(
      const LocalCoordinatorOptions& options, const client::Cancellation& interrupted);
  ~LocalCoordinator();

  const std::string& address() const { return address_; }
  // How it ended, if it has ended.
  std::optional<process::Exit> Exited() { return process_->Wait(absl::ZeroDuration()); }
  // The last lines of its log.
  std::string LogTail() const;

  // Asks it to let its jobs save a checkpoint, and to end. Returns at once.
  void Leave() { process_->Signal(SIGTERM); }
  // The same, and waits; if `hurry` returns true, or if it takes too long, kills all processes.
  // Removes a temporary state directory. A second call does nothing.
  void Stop(const std::function<bool()>& hurry);

 private:
  // `temporary`: null if the directory is kept.
  LocalCoordinator(std::string state_directory, std::unique_ptr<TemporaryState> temporary);
  absl::Status Launch(const LocalCoordinatorOptions& options,
                      const client::Cancellation& interrupted);
  // Ends the agent, which outlives a killed coordinator, through its record in the state directory.
  void KillAgent();

  const std::string state_directory_;
  std::unique_ptr<TemporaryState> temporary_;
  process::Spawner spawner_;
  std::unique_ptr<process::Process> process_;
  std::string address_;
  std::thread watcher_;
  bool stopped_ = false;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_LOCAL_COORDINATOR_H_
