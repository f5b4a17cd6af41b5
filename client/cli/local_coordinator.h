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
// run. The next run removes the directory of a killed run. The coordinator's socket is always in
// this directory, and is removed with the directory.
//
// The directory is ROOT/muster-run-XXXXXX (mode 0700). Its file `owner` is locked while this object
// lives: the kernel frees the lock of a killed process. The directory is made in /tmp instead of
// ROOT if the path of a socket would be too long.
class TemporaryState {
 public:
  // Removes the directories of killed runs, then makes a new directory. A directory of a killed run
  // belongs to this user, has such a name, and neither its `owner` nor musterd's `lock` is locked.
  // INTERNAL: the new directory cannot be made.
  static absl::StatusOr<std::unique_ptr<TemporaryState>> Create(const std::string& root);
  // Removes the directory.
  ~TemporaryState();

  const std::string& path() const { return path_; }

 private:
  TemporaryState(std::string path, process::Fd owner)
      : path_(std::move(path)), owner_(std::move(owner)) {}

  const std::string path_;
  const process::Fd owner_;
};

// The path of the musterd program: in `bin_dir` ($MUSTER_BIN_DIR) if given, or else beside this
// program, or else where Bazel builds it. NOT_FOUND: the message names the paths that were tried.
absl::StatusOr<std::string> FindMusterd(const std::string& bin_dir);

struct LocalCoordinatorOptions {
  // The result of FindMusterd.
  std::string program;
  uint32_t slots = 1;
  // The state directory, kept after the run. Empty: a directory under $TMPDIR or /tmp. This run
  // removes that directory at its end, or the next run does if this run is killed.
  std::string state_directory;
  std::string temporary_root = "/tmp";
  // Called once, on another thread, when the coordinator has ended for any reason. Not called after
  // Stop has returned.
  std::function<void()> on_end = [] {};
};

// The life cycle is Start, then Stop or the destructor, after which no process is left.
// Thread-safe: Exited, Leave.
class LocalCoordinator {
 public:
  // Returns when the coordinator listens. CANCELLED: `interrupted`, or the coordinator was ended by
  // a signal that may have gone to all processes of this run. UNAVAILABLE: the coordinator ended
  // otherwise, or does not listen in time; the message has its last log lines. FAILED_PRECONDITION:
  // another coordinator uses the state directory, and is left alone. Other errors: the coordinator
  // cannot be started, or its directory cannot be made.
  static absl::StatusOr<std::unique_ptr<LocalCoordinator>> Start(
      const LocalCoordinatorOptions& options, const client::Cancellation& interrupted);
  ~LocalCoordinator();

  const std::string& address() const { return address_; }
  // How the coordinator ended, if it ends within `wait`.
  std::optional<process::Exit> Exited(absl::Duration wait) { return process_->Wait(wait); }
  // The last lines of the coordinator's log.
  std::string LogTail() const;

  // Asks the coordinator to let its jobs save a checkpoint, and to end. Returns at once.
  void Leave() { process_->Signal(SIGTERM); }
  // Asks as Leave does, and waits until the coordinator has ended. Kills all processes if `hurry`
  // returns true or the wait takes too long. Removes a temporary state directory. A second call
  // does nothing.
  void Stop(const std::function<bool()>& hurry);

 private:
  // `temporary`: null if the directory is kept.
  LocalCoordinator(std::string state_directory, std::unique_ptr<TemporaryState> temporary);
  absl::Status Launch(const LocalCoordinatorOptions& options,
                      const client::Cancellation& interrupted);
  // Ends the agent, which outlives a killed coordinator. The record in the state directory names
  // the agent.
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
