// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023):
//   p = p * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g   (m starts at zero)
// The sign of 0 is 0. A gradient or an m that is not a number makes the parameter NaN, so that it
// is noticed.
#ifndef MUSTER_WORKER_OPTIM_LION_H_
#define MUSTER_WORKER_OPTIM_LION_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"

namespace muster::optim {

// The same as LionSpec in job_spec.proto, with the same rules.
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;  // of parameters without a weight decay of their own
};

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateLion(std::vector<OptimizedParameter> parameters,
                                                      const LionOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_LION_H_
