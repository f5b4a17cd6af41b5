// The processes on this node that do not end although they were killed: this agent's own, and those
// that former agents left. They are written to the disk for the next agent:
// docs/reference/agent.md, A process that cannot be killed.
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

// The processes for the next agent, on the disk. Not thread-safe. One agent at a time uses the
// directory (Identity).
class QuarantineFile {
 public:
  // `quarantine` in the agent's state directory. Empty: nothing is kept.
  explicit QuarantineFile(const std::string& directory);

  // The processes that the former agent wrote, whether or not they still exist. A damaged line is
  // logged and ignored; so is a file that cannot be read.
  std::vector<HangingProcess> Read() const;
  // Replaces the file's contents; removes the file if there are no processes. Errors: as disk.h.
  absl::Status Write(const std::vector<HangingProcess>& processes) const;

 private:
  const std::string path_;
};

// Each process that is added is logged; if the file cannot be written, that is logged, too. Not
// thread-safe. Times are SteadyNow's.
class HangingProcesses {
 public:
  // As QuarantineFile.
  explicit HangingProcesses(const std::string& state_directory) : file_(state_directory) {}

  // The processes of former agents that still hang, in the order of the file. Call it once, before
  // everything else.
  std::vector<HangingProcess> Restore(absl::Time now);

  // Adds a process of this agent, which is still its child.
  void Add(uint32_t slot, const RunningWorker& worker);
  // The process has ended.
  void Remove(const WorkerId& worker);
  bool Contains(const WorkerId& worker) const { return processes_.contains(worker); }

  // When to call FindEnded; infinite if no process of a former agent is left.
  absl::Time look_at() const { return look_at_; }
  // Returns the processes of former agents that have ended (the kernel does not report their end to
  // this agent). They stay here until Remove.
  std::vector<WorkerId> FindEnded(absl::Time now);

 private:
  struct Entry {
    HangingProcess process;
    // It was left by a former agent.
    bool former = false;
  };

  void Keep() const;

  const QuarantineFile file_;
  std::map<WorkerId, Entry> processes_;
  absl::Time look_at_ = absl::InfiniteFuture();
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_HANGING_PROCESSES_H_
