// A clock that only goes forward, is independent of the system's date, and continues while the
// machine sleeps.
#ifndef MUSTER_COMMON_STEADY_NOW_H_
#define MUSTER_COMMON_STEADY_NOW_H_

#include <time.h>

#include "absl/time/time.h"

namespace muster {

// The time as an absl::Time without a defined epoch: only differences have a meaning. Waits use a
// clock that stops while the machine sleeps, so code that acts after a wait must read this clock
// again.
inline absl::Time SteadyNow() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace muster

#endif  // MUSTER_COMMON_STEADY_NOW_H_
