// AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019), as torch.optim.AdamW:
//   p *= 1 - lr * weight_decay
//   m  = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// in one fused pass. t is kept per parameter.
//
// Adam (Kingma & Ba, "Adam: A Method for Stochastic Optimization", 2015), as torch.optim.Adam: the
// same, but the decay is a part of the gradient: g += weight_decay * p in the place of the first
// line.
#ifndef MUSTER_WORKER_OPTIM_ADAMW_H_
#define MUSTER_WORKER_OPTIM_ADAMW_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(std::vector<OptimizedParameter> parameters,
                                                      const AdamOptions& options);
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(std::vector<OptimizedParameter> parameters,
                                                       const AdamWOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_ADAMW_H_
