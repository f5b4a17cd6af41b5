// How commands ask the model to continue a prompt.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_GENERATOR_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_GENERATOR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/reports/outside.h"

namespace muster::train {

class Generator {
 public:
  virtual ~Generator() = default;

  // FAILED_PRECONDITION: the model cannot generate. INVALID_ARGUMENT: the request does not fit it.
  virtual absl::Status CheckSample(const v1::SampleCommand& sample) const = 0;
  // The new tokens, or an error that all ranks have and that need not end the session.
  using SampleMade = absl::StatusOr<Sampled>;
  // A collective: continues a prompt that CheckSample allows.
  virtual absl::StatusOr<SampleMade> Sample(const v1::SampleCommand& sample) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_GENERATOR_H_
