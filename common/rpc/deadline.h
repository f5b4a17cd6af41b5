// The deadline of a gRPC call or wait. Changes of the system's date have no effect on it.
#ifndef MUSTER_COMMON_RPC_DEADLINE_H_
#define MUSTER_COMMON_RPC_DEADLINE_H_

#include <grpc/support/time.h>

#include "absl/time/time.h"

namespace muster {

// A deadline for ClientContext::set_deadline, Channel::WaitForConnected, Server::Shutdown and the
// like. They also accept a time of the system's date, but then a wait of several parts reads the
// date again before each part. Infinite: no deadline.
inline gpr_timespec DeadlineAfter(absl::Duration timeout) {
  // Both libraries treat a duration that does not fit into an int64 as infinite.
  const gpr_timespec wait = gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait);
}

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_DEADLINE_H_
