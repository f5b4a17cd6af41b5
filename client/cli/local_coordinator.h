// The private coordinator of `muster run`: a musterd with local slots, as a child process.
#ifndef MUSTER_CLIENT_CLI_LOCAL_COORDINATOR_H_
#define MUSTER_CLIENT_CLI_LOCAL_COORDINATOR_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/api/cancellation.h"
#include "client/cli/temporary_state.h"
#include "common/process/process.h"

namespace muster::cli {

// The musterd program: in `bin_dir` where it is given ($MUSTER_BIN_DIR), else beside this program,
// else where Bazel builds it. NOT_FOUND: names the places that were looked at.
absl::StatusOr<std::string> FindMusterd(const std::string& bin_dir);

struct LocalCoordinatorOptions {
  // FindMusterd.
  std::string program;
  uint32_t slots = 1;
  // Kept in the end. Empty: a directory under $TMPDIR that is removed in the end, or by the next
  // run after a kill.
  std::string state_directory;
  std::string temporary_root = "/tmp";
};

// Life cycle: Start, then Stop or the destructor, which leave no process. Thread-safe: Exited.
class LocalCoordinator {
 public:
  // Returns once it listens. `interrupted` ends the wait with CANCELLED.
  // UNAVAILABLE: it ended, with its last words. Other errors: it or its directory cannot be made.
  static absl::StatusOr<std::unique_ptr<LocalCoordinator>> Start(
      const LocalCoordinatorOptions& options, const client::Cancellation& interrupted);
  ~LocalCoordinator();

  const std::string& address() const { return address_; }
  // How it ended, where it did.
  std::optional<process::Exit> Exited() { return process_->Wait(absl::ZeroDuration()); }
  // The last lines of its log.
  std::string LogTail() const;

  // Asks it to end (it ends its agent and the workers first) and waits; once `hurry` says so, or
  // after too long, kills all of them. Removes a temporary state directory. A second call does
  // nothing.
  void Stop(const std::function<bool()>& hurry);

 private:
  // `temporary`: null where the directory is kept.
  LocalCoordinator(std::string state_directory, std::unique_ptr<TemporaryState> temporary);
  absl::Status Launch(const LocalCoordinatorOptions& options,
                      const client::Cancellation& interrupted);
  // The agent outlives a killed coordinator: ends it by its record in the state directory.
  void KillAgent();

  const std::string state_directory_;
  std::unique_ptr<TemporaryState> temporary_;
  process::Spawner spawner_;
  std::unique_ptr<process::Process> process_;
  std::string address_;
  bool stopped_ = false;
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_LOCAL_COORDINATOR_H_
