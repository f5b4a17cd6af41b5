// The deadline of a gRPC call or wait, on a clock that changes of the system's date do not affect.
#ifndef MUSTER_COMMON_RPC_DEADLINE_H_
#define MUSTER_COMMON_RPC_DEADLINE_H_

#include <grpc/support/time.h>

#include "absl/time/time.h"

namespace muster {

// For ClientContext::set_deadline, Channel::WaitForConnected, Server::Shutdown and the like; these
// also accept a time of the system's date, but then a wait of several parts reads the date again
// before each part. Infinite: no deadline.
inline gpr_timespec DeadlineAfter(absl::Duration timeout) {
  // Both libraries treat a duration that does not fit into an int64 as infinite.
  const gpr_timespec wait = gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait);
}

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_DEADLINE_H_
