// The processes on this node that do not end after SIGKILL, of this agent and of former agents.
// They are written to the disk for the next agent: docs/reference/agent.md, A process that cannot
// be killed.
#ifndef MUSTER_WORKER_AGENT_HANGING_PROCESSES_H_
#define MUSTER_WORKER_AGENT_HANGING_PROCESSES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

struct HangingProcess {
  uint32_t slot = 0;
  RunningWorker worker;
  // process::ProcessStat::start_time, which distinguishes the process from a later one with the
  // same number.
  uint64_t start_time = 0;

  bool operator==(const HangingProcess&) const = default;
};

// True if the same process exists and has not ended, and also if /proc cannot be read.
bool StillHangs(const HangingProcess& hanging);

// The file of these processes for the next agent. Not thread-safe. One agent at a time uses the
// directory (Identity).
class QuarantineFile {
 public:
  // The file `quarantine` in the agent's state directory. An empty path: nothing is kept.
  explicit QuarantineFile(const std::string& directory);

  // Returns the processes that the former agent wrote, whether or not they still exist. Damaged
  // lines, and a file that cannot be read, are logged and ignored.
  std::vector<HangingProcess> Read() const;
  // Replaces the file's contents; removes the file if there are no processes. Errors: as disk.h.
  absl::Status Write(const std::vector<HangingProcess>& processes) const;

 private:
  const std::string path_;
};

// The hanging processes, in memory and in the file. Each added process is logged, and so is a
// failure to write the file. Not thread-safe. Times are SteadyNow's.
class HangingProcesses {
 public:
  // `state_directory`: as for QuarantineFile.
  explicit HangingProcesses(const std::string& state_directory) : file_(state_directory) {}

  // Returns the processes of former agents that still hang, in the order of the file. Call it once,
  // before any other method.
  std::vector<HangingProcess> Restore(absl::Time now);

  // Adds a process of this agent, which is still its child.
  void Add(uint32_t slot, const RunningWorker& worker);
  // Removes a process that has ended.
  void Remove(const WorkerId& worker);
  bool Contains(const WorkerId& worker) const { return processes_.contains(worker); }

  // The time at which to call FindEnded; infinite if no process of a former agent is left.
  absl::Time look_at() const { return look_at_; }
  // Returns the processes of former agents that have ended (the kernel does not report their end to
  // this agent). They stay in this object until Remove.
  std::vector<WorkerId> FindEnded(absl::Time now);

 private:
  struct Entry {
    HangingProcess process;
    // True for a process of a former agent.
    bool former = false;
  };

  void Keep() const;

  const QuarantineFile file_;
  std::map<WorkerId, Entry> processes_;
  absl::Time look_at_ = absl::InfiniteFuture();
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_HANGING_PROCESSES_H_
