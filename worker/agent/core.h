// The agent's decisions, without threads, processes, clock or network: (state, event, now) ->
// effects (events.h, effects.h).
//
// The core keeps the workers that run and those that have ended. An ended worker is reported again
// on every new stream until the coordinator acknowledges it. Acknowledged ones are remembered for a
// while, so that a repeated StartWorker starts nothing. The core also keeps the slots of processes
// that former agents could not end.
#ifndef MUSTER_WORKER_AGENT_CORE_H_
#define MUSTER_WORKER_AGENT_CORE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "common/slots/gpu_slot.h"
#include "worker/agent/drain.h"
#include "worker/agent/effects.h"
#include "worker/agent/events.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

enum class AfterLease {
  // Kill the workers and keep trying to attach.
  kKeepTrying,
  // Kill the workers and end, because the coordinator that started this agent is gone. An agent
  // that has no worker and no reports to send does not wait for a coordinator that is down: it ends
  // one lease after the last answer.
  kQuit,
};

struct CoreOptions {
  uint32_t slots = 1;               // for jobs on the CPU
  std::vector<uint32_t> gpus = {};  // indices; each of them is one more slot (common/slots)
  AfterLease after_lease = AfterLease::kKeepTrying;
  // Used until the first Welcome, which has the real value.
  absl::Duration lease = absl::Seconds(10);
  // Between SIGTERM and SIGKILL when the agent itself stops its workers.
  absl::Duration stop_grace = absl::Seconds(2);
  // How long the jobs may take to save and to end when this agent is stopped or drained. While they
  // write or make progress, the end is delayed until `standstill` after they last did (at least
  // three heartbeats, if the coordinator reported the progress).
  absl::Duration drain_timeout = absl::Minutes(5);
  absl::Duration standstill = absl::Seconds(10);
  // A process that still lives this long after SIGKILL hangs in the kernel.
  absl::Duration kill_timeout = absl::Seconds(10);
  // How long a shutdown waits for the last exits to be acknowledged.
  absl::Duration report_grace = absl::Seconds(2);
  // How many acknowledged exits are remembered.
  size_t remembered_exits = 256;
};

// Not thread-safe.
class Core {
 public:
  Core(const CoreOptions& options, absl::Time now);

  Effects Handle(const Event& event, absl::Time now);
  // When the next Ticked is due; infinite if none is.
  absl::Time NextDeadline() const;
  // Infinite before the first welcome.
  absl::Time lease_end() const { return lease_.End(); }
  absl::Duration lease() const {
    return lease_.terms().has_value() ? lease_.terms()->lease : options_.lease;
  }
  // True while a drain waits for workers: then WritesSeen should come about every second.
  bool draining() const { return drain_.has_value() && Waits(); }

 private:
  struct Running {
    int64_t pid = 0;  // 0 between Launch and Launched
    // SIGTERM was sent (or will be, after Launched); SIGKILL follows at this time.
    std::optional<absl::Time> kill_at;
    bool killed = false;
    // Why the worker was told to end.
    Cause cause = Cause::kUnknown;
    bool continue_when_cut_off = false;
    uint32_t slot = 0;
    // Set when the worker is killed: if it still runs at this time, it hangs in the kernel.
    absl::Time hangs_at = absl::InfiniteFuture();
    bool quarantined = false;
  };
  struct Past {
    EndedWorker worker;
    bool acked = false;
    // The worker's reports wait on the disk. For the coordinator it runs until they are sent.
    bool spooled = false;
  };

  void On(const Opened&, absl::Time now, Effects& effects);
  void On(const Welcomed&, absl::Time now, Effects& effects);
  void On(const HeartbeatAcked&, absl::Time now, Effects& effects);
  void On(const NobodyListens&, absl::Time now, Effects& effects);
  void On(const Broken&, absl::Time now, Effects& effects);
  void On(const Refused&, absl::Time now, Effects& effects);
  void On(const StartRequested&, absl::Time now, Effects& effects);
  void On(const StopRequested&, absl::Time now, Effects& effects);
  void On(const ExitAcked&, absl::Time now, Effects& effects);
  void On(const DrainRequested&, absl::Time now, Effects& effects);
  void On(const WritesSeen&, absl::Time now, Effects& effects);
  void On(const Launched&, absl::Time now, Effects& effects);
  void On(const LaunchFailed&, absl::Time now, Effects& effects);
  void On(const Ended&, absl::Time now, Effects& effects);
  void On(const SpoolFound&, absl::Time now, Effects& effects);
  void On(const SpoolTold&, absl::Time now, Effects& effects);
  void On(const HangingFound&, absl::Time now, Effects& effects);
  void On(const HangingGone&, absl::Time now, Effects& effects);
  void On(const ShutdownRequested&, absl::Time now, Effects& effects);
  void On(const Ticked&, absl::Time now, Effects& effects);

  // When the lease is over; infinite if EndLease has already been called for this end.
  absl::Time LeaseEnd() const;
  void EndLease(absl::Time now, Effects& effects);
  void Stop(const WorkerId& worker, Running& running, Cause cause, absl::Time kill_at,
            Effects& effects);
  void StopAll(Cause cause, absl::Time kill_at, Effects& effects);
  // True if a worker runs whose end can be waited for.
  bool Waits() const;
  bool Offers(uint32_t slot) const {
    if (slot < kFirstGpuSlot) return slot < options_.slots;
    return std::find(options_.gpus.begin(), options_.gpus.end(), slot - kFirstGpuSlot) !=
           options_.gpus.end();
  }
  void KillOverdue(absl::Time now, Effects& effects);
  // The process that hung in the slot has ended.
  void EndQuarantine(uint32_t slot, const RunningWorker& worker, Effects& effects);
  void RecordEnd(EndedWorker worker, Effects& effects, bool spooled = false);
  void QuitWhenDone(absl::Time now, Effects& effects);
  bool AllAcked() const;

  const CoreOptions options_;
  Lease lease_;

  bool connected_ = false;
  std::optional<absl::Duration> heartbeat_interval_;  // set while attached
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  // When the newest stream was opened, and whether DropStream followed.
  absl::Time opened_ = absl::InfinitePast();
  bool dropped_ = false;
  // Until the first welcome there is no lease. The agent must find its coordinator before this
  // time.
  const absl::Time first_welcome_until_;
  // The end of the lease for which EndLease was called last.
  absl::Time ended_lease_ = absl::InfinitePast();

  std::map<WorkerId, Running> running_;
  std::map<WorkerId, Past> past_;
  // The acknowledged ones of past_, oldest first: the first one is forgotten next.
  std::deque<WorkerId> acked_;
  // Processes that former agents could not end. They do not count as workers any more: only their
  // slots are reported.
  std::map<WorkerId, HangingFound> left_hanging_;

  // Set while the node is drained: the workers should save and end, and nothing new starts.
  std::optional<Drain> drain_;
  // ShutdownRequested came.
  bool shutdown_ = false;
  // Set once this agent must end: the status of Quit.
  std::optional<absl::Status> quitting_;
  // Quit does not wait longer than this for the last exits to be acknowledged.
  absl::Time report_until_ = absl::InfiniteFuture();
  bool quit_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_H_
