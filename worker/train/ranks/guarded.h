// Turns exceptions into absl::Status; the training core does so only here.
#ifndef MUSTER_WORKER_TRAIN_RANKS_GUARDED_H_
#define MUSTER_WORKER_TRAIN_RANKS_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "worker/models/unit.h"

namespace muster::train {

// Runs `body`, which returns absl::Status or StatusOr, and returns its result. If it throws:
// RESOURCE_EXHAUSTED for a lack of memory (std::bad_alloc), FAILED_PRECONDITION with the text of a
// ModelError, the status of a ContextError, and INTERNAL with the text of any other exception.
// `what` stands before the text.
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
