// The agent of the coordinator's own machine (`--local-slots`). It is a process in its own session,
// so that the agent and its workers survive when the coordinator is killed. The next coordinator
// with the same state directory finds the agent by STATE/local-agent.pid and uses it. The agent is
// started again whenever it ends.
#ifndef MUSTER_COORDINATOR_LAUNCH_LOCAL_AGENT_H_
#define MUSTER_COORDINATOR_LAUNCH_LOCAL_AGENT_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/fd.h"
#include "common/process/process.h"

namespace muster::launch {

// The agent's node name.
inline constexpr char kLocalNode[] = "local";

struct LocalAgentOptions {
  // The path of the muster-agent program.
  std::string program;
  // The coordinator's address, host:port.
  std::string coordinator;
  uint32_t slots = 1;
  // Further arguments of the program.
  std::vector<std::string> more;
  // The directory for local-agent.pid and local-agent.log.
  std::string state_directory;
  // The time between SIGTERM and SIGKILL at the end. The agent needs part of it to end its workers.
  absl::Duration grace = absl::Seconds(10);
};

// Thread-safe.
class LocalAgent {
 public:
  // Uses the agent that a former coordinator left, if it has the same coordinator address, slots
  // and further arguments (its program is not compared). Otherwise ends that agent and starts a new
  // agent. Errors: NOT_FOUND if the program does not exist or cannot be executed; the errors of
  // process::Spawner::Spawn.
  static absl::StatusOr<std::unique_ptr<LocalAgent>> Start(const LocalAgentOptions& options);
  // Ends the agent with SIGTERM and waits for its end. The agent ends its workers first.
  ~LocalAgent();

  // Stops the restarts: the agent is not started again when it ends.
  void Leave();
  // Returns whether the agent and with it its workers have ended. HasEnded and Signal may only be
  // called after Leave, on the thread of Leave.
  bool HasEnded() const;
  void Signal(int signal);

 private:
  explicit LocalAgent(const LocalAgentOptions& options) : options_(options) {}

  // The contents of STATE/local-agent.pid. start_time distinguishes the process from a later
  // process with the same number.
  struct Record {
    pid_t pid = 0;
    uint64_t start_time = 0;
    std::string coordinator;
    uint32_t slots = 0;
    std::string more;  // each after a space, as C writes texts
  };
  absl::StatusOr<Record> ReadRecord() const;
  absl::Status WriteRecord(pid_t pid) const;
  std::string More() const;  // as in a record
  std::string RecordPath() const { return options_.state_directory + "/local-agent.pid"; }
  std::string LogPath() const { return options_.state_directory + "/local-agent.log"; }

  // Uses the former agent's process if it lives.
  void Adopt();
  void EndAdopted();
  absl::Status Launch();
  // Starts the agent again whenever it ends, until stop_ is readable.
  void Watch();
  int Watched() const { return process_ != nullptr ? process_->pidfd() : adopted_.get(); }

  const LocalAgentOptions options_;
  process::Spawner spawner_;
  process::Fd stop_;

  // ---- Used by the watching thread only, after its start.
  std::unique_ptr<process::Process> process_;
  // A pidfd of an agent that is not our child.
  process::Fd adopted_;

  std::thread watcher_;
};

}  // namespace muster::launch

#endif  // MUSTER_COORDINATOR_LAUNCH_LOCAL_AGENT_H_
