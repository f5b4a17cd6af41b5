// The agent's decisions, without threads, processes, clock or network: (state, event, now) ->
// effects (events.h).
//
// The core's parts know the coordinator's stream and the lease (attachment.h), and the workers that
// run and that have ended (processes.h). The core itself decides what is started, when the node is
// drained, and when the agent ends.
#ifndef MUSTER_WORKER_AGENT_CORE_CORE_H_
#define MUSTER_WORKER_AGENT_CORE_CORE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "worker/agent/core/attachment.h"
#include "worker/agent/core/events.h"
#include "worker/agent/core/processes.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// The drain of a node: how long its workers may take to save and to end. While they make progress,
// they get more time. Pure: time is an argument.
struct Drain {
  std::string reason;
  // The cause of the exits of workers that end because of this drain.
  Cause cause = Cause::kUnknown;
  // The deadline of DrainRequested; with another deadline the time begins anew.
  absl::Duration deadline;
  // The end of the time that the workers get even without progress.
  absl::Time until;
  // The newest known values; 0: none yet.
  uint64_t bytes = 0;
  uint64_t activity = 0;
  // The workers are not ended before this time, because they make progress.
  absl::Time moves_until = absl::InfinitePast();
  // The time is over, and the workers were told to end.
  bool over = false;

  // The time at which the workers are told to end.
  absl::Time End() const { return std::max(until, moves_until); }

  // Takes in the number of bytes that all workers together have written so far. A larger number is
  // progress: then the workers are not ended before `delayed_until`.
  void SawWrites(uint64_t total, absl::Time delayed_until) {
    // The first total only says where the count begins. The bytes of a worker that has ended are no
    // longer in the total.
    if (bytes > 0 && total > bytes) moves_until = std::max(moves_until, delayed_until);
    bytes = total;
  }

  // Takes in HeartbeatAcked::workers_activity. A change is progress: then the workers are not ended
  // before `delayed_until`.
  void SawActivity(uint64_t reported, absl::Time delayed_until) {
    if (reported == 0) return;
    if (activity != 0 && activity != reported) moves_until = std::max(moves_until, delayed_until);
    activity = reported;
  }
};

enum class AfterLease {
  // The agent kills the workers and keeps trying to attach.
  kKeepTrying,
  // The agent kills the workers and ends, because the coordinator that started it is gone. Without
  // workers and without reports to send, the agent ends one lease after the last answer, even if
  // the coordinator is only down.
  kQuit,
};

struct CoreOptions {
  uint32_t slots = 1;               // for jobs on the CPU
  std::vector<uint32_t> gpus = {};  // indices; each of them is one more slot (common/slots)
  AfterLease after_lease = AfterLease::kKeepTrying;
  // The lease until the first Welcome, which has the real value.
  absl::Duration lease = absl::Seconds(10);
  // The time between SIGTERM and SIGKILL when the agent itself stops its workers.
  absl::Duration stop_grace = absl::Seconds(2);
  // The time that the jobs get to save and to end when this agent is stopped or drained. Writes and
  // progress delay the end: it comes `standstill` after the last of them (at least three
  // heartbeats, if the coordinator reported the progress).
  absl::Duration drain_timeout = absl::Minutes(5);
  absl::Duration standstill = absl::Seconds(10);
  // The time after SIGKILL after which a process that still lives hangs in the kernel.
  absl::Duration kill_timeout = absl::Seconds(10);
  // The time that a shutdown waits for the last exits to be acknowledged.
  absl::Duration report_grace = absl::Seconds(2);
  // The number of acknowledged exits that are remembered.
  size_t remembered_exits = 256;
};

// Not thread-safe.
class Core {
 public:
  Core(const CoreOptions& options, absl::Time now);

  Effects Handle(const Event& event, absl::Time now);
  // The time at which the next Ticked is due; infinite if none is due.
  absl::Time NextDeadline() const;
  // The end of the lease; infinite before the first welcome.
  absl::Time lease_end() const { return attachment_.lease().End(); }
  absl::Duration lease() const {
    const std::optional<LeaseTerms>& terms = attachment_.lease().terms();
    return terms.has_value() ? terms->lease : options_.lease;
  }
  // True while a drain waits for workers. WritesSeen should come about every second then.
  bool draining() const { return drain_.has_value() && processes_.Waits(); }

 private:
  void On(const Opened& opened, absl::Time now, Effects& effects);
  void On(const Welcomed& welcome, absl::Time now, Effects& effects);
  void On(const HeartbeatAcked& acked, absl::Time now);
  void On(const Refused& refused, absl::Time now, Effects& effects);
  void On(const StartRequested& request, absl::Time now, Effects& effects);
  void On(const StopRequested& request, absl::Time now, Effects& effects);
  void On(const DrainRequested& request, absl::Time now);
  void On(const Ended& ended, Effects& effects);
  void On(const ShutdownRequested&, absl::Time now, Effects& effects);

  // The time at which the lease is over; infinite if EndLease has already been called for this end.
  absl::Time LeaseEnd() const;
  void EndLease(absl::Time now, Effects& effects);
  // Returns an exit that says why this agent cannot start the worker now; nullopt if it can.
  std::optional<EndedWorker> Refusal(const StartRequested& request) const;
  bool Offers(uint32_t slot) const;
  void RecordEnd(EndedWorker worker, Effects& effects, bool spooled = false) {
    ended_.Add(std::move(worker), spooled, attachment_, effects);
  }
  void QuitWhenDone(absl::Time now, Effects& effects);

  const CoreOptions options_;
  Attachment attachment_;
  Processes processes_;
  EndedWorkers ended_;

  // The time before which the agent must find its coordinator. There is no lease until the first
  // welcome.
  const absl::Time first_welcome_until_;
  // The end of the lease for which EndLease was called last.
  absl::Time ended_lease_ = absl::InfinitePast();

  // Set while the node is drained: the workers should save and end, and nothing new starts.
  std::optional<Drain> drain_;
  // True after ShutdownRequested.
  bool shutdown_ = false;
  // The status of Quit, set when this agent must end.
  std::optional<absl::Status> quitting_;
  // The time until which Quit waits for the last exits to be acknowledged.
  absl::Time report_until_ = absl::InfiniteFuture();
  bool quit_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_CORE_H_
