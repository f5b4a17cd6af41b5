// The drain of a node: how long its workers may take to save and to end. While they make progress,
// they get more time. Pure: time is an argument.
#ifndef MUSTER_WORKER_AGENT_CORE_DRAIN_H_
#define MUSTER_WORKER_AGENT_CORE_DRAIN_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_DRAIN_H_
