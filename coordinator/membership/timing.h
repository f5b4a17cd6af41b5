// The ladder of times that liveness is judged by, all from one setting: heartbeat < lease <
// progress watchdog < collective timeout; but for the watchdog, which a job may set. The
// coordinator, which knows the culprit, acts before a collective's own timeout does.
//
// A lease has two ends. Who holds it (an agent, a worker) counts from the sending of the last
// heartbeat that was acknowledged, and has killed what it holds by lease - Margin()
// (common/lease/lease.h). The coordinator counts from the moment at which it took that heartbeat,
// which is never earlier, and gives away what was held at lease + Margin() + Kill(). So a late
// timer, a clock that runs a little faster, and a kernel that needs a moment to end a process have
// 2 Margin() + Kill() of room.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_

#include <algorithm>

#include "absl/time/time.h"
#include "coordinator/membership/watchdog.h"

namespace muster::membership {

struct Timing {
  // Who holds it and hears nothing for so long has ended.
  absl::Duration lease = absl::Seconds(10);
  // For so long agents and workers go on while connections to the coordinator are refused: it is
  // down, and nobody replaces them. 0: they end with their lease.
  absl::Duration autonomy = absl::Hours(12);
  // Patience::startup of jobs that do not set it.
  absl::Duration startup = absl::Minutes(5);

  // A mistake that simulations plant (cluster::PlantedFault): nothing lies between the two ends of
  // a lease.
  bool without_margin = false;

  absl::Duration Heartbeat() const { return lease / 5; }
  // So long before the lease is over who holds it ends. A quarter of a second is plenty for a timer
  // on a busy machine; of a short lease it is a tenth, so that most of it is left for the network.
  absl::Duration Margin() const {
    return without_margin ? absl::ZeroDuration() : std::min(absl::Milliseconds(250), lease / 10);
  }
  // What the kernel gets for ending a process that was sent SIGKILL. With the margin at most 1 s.
  absl::Duration Kill() const {
    return without_margin ? absl::ZeroDuration()
                          : std::min(absl::Milliseconds(750), 3 * lease / 10);
  }
  // An agent or worker that is not heard of for so long is gone, and may be replaced.
  absl::Duration Grant() const { return lease + Margin() + Kill(); }
  // Generous: one micro-batch of a large model may take minutes, and what is dead rather than slow
  // is known by its lease.
  Patience DefaultPatience() const { return {.no_progress = 30 * lease, .startup = startup}; }
  // The shortest Patience::no_progress that a job may set: heartbeats tell of progress, and they
  // may be late by as much as a lease.
  absl::Duration ShortestPatience() const { return 3 * lease; }
  absl::Duration CollectiveTimeout(const Patience& patience) const {
    return std::max(60 * lease, 2 * patience.no_progress);
  }
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
