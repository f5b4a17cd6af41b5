// A clock that only goes forward, whatever is done to the system's date, and that goes on while the
// machine sleeps.
#ifndef MUSTER_COMMON_STEADY_NOW_H_
#define MUSTER_COMMON_STEADY_NOW_H_

#include <time.h>

#include "absl/time/time.h"

namespace muster {

// As an absl::Time whose epoch means nothing: only differences do. Waits are on a clock that stands
// still while the machine sleeps: who acts after one looks at this clock again.
inline absl::Time SteadyNow() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace muster

#endif  // MUSTER_COMMON_STEADY_NOW_H_
