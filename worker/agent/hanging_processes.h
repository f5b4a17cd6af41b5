// The processes on this node that do not end although they were killed: this agent's own, and those
// that former agents left. They are noted on disk for the next agent: docs/agent.md, A process that
// cannot be killed.
#ifndef MUSTER_WORKER_AGENT_HANGING_PROCESSES_H_
#define MUSTER_WORKER_AGENT_HANGING_PROCESSES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/agent/quarantine_file.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

// Each process that comes is logged; where the disk cannot take the notes that is logged, too. Not
// thread-safe. Times are SteadyNow's.
class HangingProcesses {
 public:
  // As QuarantineFile.
  explicit HangingProcesses(const std::string& state_directory) : file_(state_directory) {}

  // What former agents left and is still there, in the order of the file. Once, before all else.
  std::vector<HangingProcess> Restore(absl::Time now);

  // One of this agent's own, which is its child still.
  void Add(uint32_t slot, const RunningWorker& worker);
  // It has ended at last.
  void Remove(const WorkerId& worker);
  bool Contains(const WorkerId& worker) const { return processes_.contains(worker); }

  // When FindEnded is to be called; infinite where no former agent's process is left.
  absl::Time look_at() const { return look_at_; }
  // Nobody tells of the end of former agents' processes: those that have ended. They stay here
  // until Remove.
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
