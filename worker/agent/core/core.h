// The agent's decisions, without threads, processes, clock or network: (state, event, now) ->
// effects (events.h).
//
// Its parts know the coordinator's stream and the lease (attachment.h), the workers that run
// and those that have ended (processes.h). The core itself decides what is started, when the node
// is drained, and when the agent ends.
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
  // Because the workers make progress, they are not ended before this time.
  absl::Time moves_until = absl::InfinitePast();
  // The time is over, and the workers were told to end.
  bool over = false;

  // When the workers are told to end.
  absl::Time End() const { return std::max(until, moves_until); }

  // All workers together have written `total` bytes so far. If that is progress, they are not ended
  // before `delayed_until`.
  void SawWrites(uint64_t total, absl::Time delayed_until) {
    // The first total only says where the count begins. The bytes of a worker that has ended are no
    // longer in the total.
    if (bytes > 0 && total > bytes) moves_until = std::max(moves_until, delayed_until);
    bytes = total;
  }

  // The coordinator reported HeartbeatAcked::workers_activity. If that is progress, the workers are
  // not ended before `delayed_until`.
  void SawActivity(uint64_t reported, absl::Time delayed_until) {
    if (reported == 0) return;
    if (activity != 0 && activity != reported) moves_until = std::max(moves_until, delayed_until);
    activity = reported;
  }
};

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
  absl::Time lease_end() const { return attachment_.lease().End(); }
  absl::Duration lease() const {
    const std::optional<LeaseTerms>& terms = attachment_.lease().terms();
    return terms.has_value() ? terms->lease : options_.lease;
  }
  // True while a drain waits for workers: then WritesSeen should come about every second.
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

  // When the lease is over; infinite if EndLease has already been called for this end.
  absl::Time LeaseEnd() const;
  void EndLease(absl::Time now, Effects& effects);
  // Why this agent cannot start the worker now; its exit, which says so.
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

  // Until the first welcome there is no lease. The agent must find its coordinator before this
  // time.
  const absl::Time first_welcome_until_;
  // The end of the lease for which EndLease was called last.
  absl::Time ended_lease_ = absl::InfinitePast();

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

#endif  // MUSTER_WORKER_AGENT_CORE_CORE_H_
