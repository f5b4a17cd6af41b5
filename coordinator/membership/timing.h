// The times by which liveness is judged, all computed from one setting: heartbeat < lease <
// progress watchdog < collective timeout. Only the watchdog may be set by a job. The coordinator
// can find out which rank is at fault, so it acts before a collective's own timeout does.
//
// A lease has two ends. Its holder (an agent, a worker) counts from the moment at which it sent the
// last heartbeat that was acknowledged, and ends its processes at lease - Margin()
// (common/lease/lease.h). The coordinator counts from the moment at which it received that
// heartbeat, which is never earlier, and replaces the processes at lease + Margin() + Kill(). So a
// late timer, a clock that runs a little faster, and a kernel that needs a moment to end a process
// have 2 Margin() + Kill() of room.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_

#include <algorithm>

#include "absl/time/time.h"
#include "coordinator/membership/watchdog.h"

namespace muster::membership {

struct Timing {
  // A holder that gets no answer for this time ends itself before the time is over.
  absl::Duration lease = absl::Seconds(10);
  // How long agents and workers continue while connections to the coordinator are refused: while it
  // is down it cannot replace them. 0: they end with their lease.
  absl::Duration autonomy = absl::Hours(12);
  // ProgressLimits::startup of jobs that do not set it.
  absl::Duration startup = absl::Minutes(5);

  // A fault that simulations plant (cluster::PlantedFault): the coordinator ends a lease at the
  // same time as its holder does.
  bool without_margin = false;

  absl::Duration Heartbeat() const { return lease / 5; }
  // The holder ends itself this long before the lease is over. A quarter of a second is enough for
  // a timer on a busy machine. For a short lease it is a tenth, so that most of the lease is left
  // for the network.
  absl::Duration Margin() const {
    return without_margin ? absl::ZeroDuration() : std::min(absl::Milliseconds(250), lease / 10);
  }
  // The time that the kernel has to end a process after SIGKILL. Together with the margin at most 1
  // s.
  absl::Duration Kill() const {
    return without_margin ? absl::ZeroDuration()
                          : std::min(absl::Milliseconds(750), 3 * lease / 10);
  }
  // An agent or worker from which nothing was received for this time is gone, and may be replaced.
  absl::Duration Grant() const { return lease + Margin() + Kill(); }
  // This is long on purpose: one micro-batch of a large model may take minutes, and the end of its
  // lease shows that a process is dead.
  ProgressLimits DefaultProgressLimits() const {
    return {.no_progress = 30 * lease, .startup = startup};
  }
  // The shortest ProgressLimits::no_progress that a job may set. Progress is seen by heartbeats,
  // which may be late by up to a lease.
  absl::Duration ShortestNoProgress() const { return 3 * lease; }
  absl::Duration CollectiveTimeout(const ProgressLimits& limits) const {
    return std::max(60 * lease, 2 * limits.no_progress);
  }
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
