// Stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
//   d = g + weight_decay * p;   b = momentum * b + d (b starts at zero);   p -= lr * b
//   nesterov: p -= lr * (d + momentum * b).   Without momentum p -= lr * d, and there is no state.
#ifndef MUSTER_WORKER_OPTIM_SGD_H_
#define MUSTER_WORKER_OPTIM_SGD_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_SGD_H_
