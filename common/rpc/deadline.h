// When a gRPC call or wait is to end, on a clock that nobody sets.
#ifndef MUSTER_COMMON_RPC_DEADLINE_H_
#define MUSTER_COMMON_RPC_DEADLINE_H_

#include <grpc/support/time.h>

#include "absl/time/time.h"

namespace muster {

// For ClientContext::set_deadline, Channel::WaitForConnected, Server::Shutdown and the like; they
// also take a time of the system's date, and a wait of several parts looks at the date anew before
// each. Infinite: never.
inline gpr_timespec DeadlineAfter(absl::Duration timeout) {
  // What is too long for an int64 is infinite to both libraries.
  const gpr_timespec wait = gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait);
}

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_DEADLINE_H_
