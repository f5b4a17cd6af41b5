// An error of a context (unit.h) during a forward, for example because it could not gather the
// parameters of a unit. It passes through the forward as an exception; the model did not cause it.
#ifndef MUSTER_WORKER_MODELS_CONTEXT_ERROR_H_
#define MUSTER_WORKER_MODELS_CONTEXT_ERROR_H_

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace muster::models {

class ContextError : public std::runtime_error {
 public:
  explicit ContextError(absl::Status status)
      : std::runtime_error(std::string(status.message())), status_(std::move(status)) {}

  const absl::Status& status() const { return status_; }

 private:
  const absl::Status status_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_CONTEXT_ERROR_H_
