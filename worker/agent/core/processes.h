// The processes that this agent has on its node: workers that run, workers that have ended, and
// processes that do not end after SIGKILL. The slots of the last kind are quarantined. Pure: time
// is an argument.
#ifndef MUSTER_WORKER_AGENT_CORE_PROCESSES_H_
#define MUSTER_WORKER_AGENT_CORE_PROCESSES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "worker/agent/core/attachment.h"
#include "worker/agent/core/events.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

struct Process {
  int64_t pid = 0;  // 0 between Launch and Launched
  // The time of SIGKILL. SIGTERM was sent, or will be after Launched.
  std::optional<absl::Time> kill_at;
  bool killed = false;
  // The reason why the worker was told to end.
  Cause cause = Cause::kUnknown;
  bool continue_when_cut_off = false;
  uint32_t slot = 0;
  // Set when the worker is killed: a worker that still runs at this time hangs in the kernel.
  absl::Time hangs_at = absl::InfiniteFuture();
  bool quarantined = false;
};

// The workers that run, and the processes that do not end.
class Processes {
 public:
  // `kill_timeout`: a process that still lives this long after SIGKILL hangs in the kernel.
  explicit Processes(absl::Duration kill_timeout) : kill_timeout_(kill_timeout) {}

  void Start(const StartRequested& request, Effects& effects);
  void On(const Launched& launched, const Attachment& attachment, Effects& effects);
  void On(const LaunchFailed& failed) { running_.erase(failed.worker); }
  // Forgets the process, which has ended, and returns its record.
  std::optional<Process> On(const Ended& ended, const Attachment& attachment, Effects& effects);
  // Adds a process of a former agent. It does not count as a worker: only its slot is reported.
  void On(const HangingFound& found) { left_hanging_[found.worker.worker] = found; }
  void On(const HangingGone& gone, const Attachment& attachment, Effects& effects);

  // Sends SIGTERM, unless an earlier call sent it. SIGKILL follows at the earliest `kill_at` of all
  // calls. False: no such worker runs.
  bool Stop(const WorkerId& worker, Cause cause, absl::Time kill_at, Effects& effects);
  void StopAll(Cause cause, absl::Time kill_at, Effects& effects);
  // Ends the lease: KillOverdue then kills all workers now, except those with
  // `continue_when_cut_off`. Returns true if there are such workers.
  bool EndLease(absl::Time now);
  void KillOverdue(absl::Time now, const Attachment& attachment, Effects& effects);

  const Process* Find(const WorkerId& worker) const;
  bool empty() const { return running_.empty(); }
  // True if a worker runs whose end can be waited for.
  bool Waits() const;
  // True if a worker runs that was not killed.
  bool HoldLease() const;
  void AddTo(SendHello* hello) const;
  // The time at which KillOverdue has something to do; infinite if it has nothing to do.
  absl::Time NextDeadline() const;

 private:
  static void Stop(const WorkerId& worker, Process& process, Cause cause, absl::Time kill_at,
                   Effects& effects);
  // Handles the end of the process that hung in the slot.
  static void EndQuarantine(uint32_t slot, const RunningWorker& worker,
                            const Attachment& attachment, Effects& effects);

  const absl::Duration kill_timeout_;
  std::map<WorkerId, Process> running_;
  std::map<WorkerId, HangingFound> left_hanging_;
};

// The workers of this node that have ended. Every new stream reports an ended worker until the
// coordinator acknowledges the exit. Acknowledged workers are remembered for a while, so that a
// repeated StartWorker starts nothing.
class EndedWorkers {
 public:
  // `remembered`: how many acknowledged exits are remembered.
  explicit EndedWorkers(size_t remembered) : remembered_(remembered) {}

  // `spooled`: the worker's reports wait on the disk, and its exit is sent after them.
  void Add(EndedWorker worker, bool spooled, const Attachment& attachment, Effects& effects);
  void On(const ExitAcked& ack);
  void On(const SpoolTold& told, const Attachment& attachment, Effects& effects);
  // The coordinator has accepted this agent on a new stream: the reports that wait are sent.
  void On(const Welcomed&, Effects& effects) const;
  // Sends the exit of this worker again. False: no exit of this worker is remembered.
  bool TellAgain(const WorkerId& worker, Effects& effects) const;
  // Adds the workers that are not acknowledged. A worker with reports on the disk is added as
  // running.
  void AddTo(SendHello* hello) const;
  bool AllAcked() const;

 private:
  struct Past {
    EndedWorker worker;
    bool acked = false;
    bool spooled = false;
  };

  const size_t remembered_;
  std::map<WorkerId, Past> past_;
  // The acknowledged workers of past_, oldest first: the first one is forgotten next.
  std::deque<WorkerId> acked_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_PROCESSES_H_
