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
#include "worker/optim/options.h"

namespace muster::optim {

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateLion(std::vector<OptimizedParameter> parameters,
                                                      const LionOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_LION_H_
