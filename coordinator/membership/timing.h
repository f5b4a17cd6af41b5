// The ladder of times that liveness is judged by, all from one setting: heartbeat < lease <
// progress watchdog < collective timeout. The coordinator, which knows the culprit, acts before a
// collective's own timeout does.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_

#include "absl/time/time.h"

namespace muster::membership {

struct Timing {
  // An agent or worker that is not heard of for so long is lost.
  absl::Duration lease = absl::Seconds(10);
  // A worker may show no progress for so long before its session started (it loads its model and
  // data).
  absl::Duration startup = absl::Minutes(5);

  absl::Duration Heartbeat() const { return lease / 5; }
  // A worker whose step and progress stay the same for so long hangs. Generous: one step of a large model may
  // take minutes, and what is dead rather than slow is known by its lease.
  absl::Duration Progress() const { return 30 * lease; }
  absl::Duration CollectiveTimeout() const { return 60 * lease; }
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_TIMING_H_
