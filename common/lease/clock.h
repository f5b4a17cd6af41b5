// The clock of leases: only goes forward, whatever is done to the system's date, and goes on while the machine sleeps.
#ifndef MUSTER_COMMON_LEASE_CLOCK_H_
#define MUSTER_COMMON_LEASE_CLOCK_H_

#include <time.h>

#include "absl/time/time.h"

namespace muster {

// As an absl::Time whose epoch means nothing. A timer of the steady clock may wake later than this says, after a sleep: who acts
// looks at this clock again.
inline absl::Time LeaseNow() {
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace muster

#endif  // MUSTER_COMMON_LEASE_CLOCK_H_
