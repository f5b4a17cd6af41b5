// Turns exceptions into absl::Status. The training core catches exceptions only here.
#ifndef MUSTER_WORKER_TRAIN_RANKS_GUARDED_H_
#define MUSTER_WORKER_TRAIN_RANKS_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "worker/models/unit.h"

namespace muster::train {

// Runs `body` and returns its result, an absl::Status or StatusOr. `what` stands before the text of
// an exception. Exceptions become these errors:
// - std::bad_alloc: RESOURCE_EXHAUSTED;
// - ModelError: FAILED_PRECONDITION with the text of the exception;
// - ContextError: the status of the exception, without `what`;
// - any other: INTERNAL with the text of the exception.
template <typename Body>
auto Guarded(const char* what, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  } catch (const models::ModelError& error) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": ", error.what()));
  } catch (const models::ContextError& error) {
    return error.status();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrCat(what, ": an exception that is no std::exception"));
  }
}

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_RANKS_GUARDED_H_
