// Conversion of exceptions of c10d and Gloo to statuses. All code in comm/gloo calls c10d and Gloo
// through these functions.
#ifndef MUSTER_WORKER_COMM_GLOO_EXCEPTIONS_H_
#define MUSTER_WORKER_COMM_GLOO_EXCEPTIONS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace muster::comm {

// Returns the current exception as a status; must be called inside a catch block. The code is
// UNAVAILABLE, or DEADLINE_EXCEEDED for a timeout. The message is the first line of the exception's
// text, without source locations and backtrace.
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
