// Stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
//   d = g + weight_decay * p;   b = momentum * b + d (b starts at zero);   p -= lr * b
//   nesterov: p -= lr * (d + momentum * b).   Without momentum p -= lr * d, and there is no state.
#ifndef MUSTER_WORKER_OPTIM_SGD_H_
#define MUSTER_WORKER_OPTIM_SGD_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"

namespace muster::optim {

// As SgdSpec in job_spec.proto, whose rules they keep.
struct SgdOptions {
  double momentum = 0.0;
  double weight_decay = 0.0;  // of parameters that have none of their own
  bool nesterov = false;
};

// INVALID_ARGUMENT names the parameter that does not fit.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_SGD_H_
