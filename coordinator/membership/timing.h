// The times by which liveness is judged, computed from one setting: heartbeat < lease < progress
// watchdog < collective timeout. A job can only set the watchdog's time. The coordinator can find
// out which rank is at fault, so it acts before a collective's own timeout.
//
// A lease has two ends. Its holder (an agent or a worker) counts from the time at which it sent the
// last acknowledged heartbeat. The holder ends its processes at lease - Margin()
// (common/lease/lease.h). The coordinator counts from the time at which it received this heartbeat,
// which is never earlier. It replaces the processes at lease + Margin() + Kill(). The time between
// the two ends is at least 2 Margin() + Kill(). It allows for a late timer, a fast clock, and the
// time that the kernel needs to end a process.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_

#include <algorithm>

#include "absl/time/time.h"
#include "coordinator/membership/watchdog.h"

namespace muster::membership {

struct Timing {
  // The lease. A holder that gets no answer for this time ends itself before the time is over.
  absl::Duration lease = absl::Seconds(10);
  // The time that agents and workers continue while connections to the coordinator are refused. A
  // coordinator that is down cannot replace them. 0: they end with their lease.
  absl::Duration autonomy = absl::Hours(12);
  // ProgressLimits::startup of jobs that do not set it.
  absl::Duration startup = absl::Minutes(5);

  // A planted fault for simulations (cluster::PlantedFault): the coordinator ends a lease at the
  // same time as its holder.
  bool without_margin = false;

  absl::Duration Heartbeat() const { return lease / 5; }
  // The time before the end of the lease at which the holder ends itself. A quarter of a second is
  // enough for a timer on a busy machine. The margin of a short lease is a tenth of it, so that
  // most of the lease is left for the network.
  absl::Duration Margin() const {
    return without_margin ? absl::ZeroDuration() : std::min(absl::Milliseconds(250), lease / 10);
  }
  // The time that the kernel has to end a process after SIGKILL. Margin() + Kill() is at most 1 s.
  absl::Duration Kill() const {
    return without_margin ? absl::ZeroDuration()
                          : std::min(absl::Milliseconds(750), 3 * lease / 10);
  }
  // The time without a message after which an agent or worker is gone and may be replaced.
  absl::Duration Grant() const { return lease + Margin() + Kill(); }
  // The watchdog's defaults. The time is long on purpose: one micro-batch of a large model may take
  // minutes. The lease, not the watchdog, shows that a process is dead.
  ProgressLimits DefaultProgressLimits() const {
    return {.no_progress = 30 * lease, .startup = startup};
  }
  // The shortest ProgressLimits::no_progress that a job may set. Heartbeats show progress, and may
  // be late by up to a lease.
  absl::Duration ShortestNoProgress() const { return 3 * lease; }
  absl::Duration CollectiveTimeout(const ProgressLimits& limits) const {
    return std::max(60 * lease, 2 * limits.no_progress);
  }
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
