// Converts exceptions of c10d and Gloo to statuses: all code in comm/gloo that calls these
// libraries does so through these functions.
#ifndef MUSTER_WORKER_COMM_GLOO_EXCEPTIONS_H_
#define MUSTER_WORKER_COMM_GLOO_EXCEPTIONS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace muster::comm {

// Inside a catch block: the current exception as a status, UNAVAILABLE or (timeouts)
// DEADLINE_EXCEEDED, with the first line of its message, without source locations and backtrace.
absl::Status CurrentExceptionAsStatus();

template <typename Function>
absl::Status CatchExceptions(Function&& function) {
  try {
    std::forward<Function>(function)();
    return absl::OkStatus();
  } catch (...) {
    return CurrentExceptionAsStatus();
  }
}

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_EXCEPTIONS_H_
