// Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012), as torch.optim.Adadelta:
//   g += weight_decay * p
//   s  = rho * s + (1 - rho) * g^2                 the running mean of the squared gradient
//   d  = sqrt(a + eps) / sqrt(s + eps) * g
//   a  = rho * a + (1 - rho) * d^2                 the running mean of the squared change
//   p -= lr * d
// s (square_avg) and a (acc_delta) start at zero. The steps are counted, as torch does, but nothing
// depends on their number.
#ifndef MUSTER_WORKER_OPTIM_ADADELTA_H_
#define MUSTER_WORKER_OPTIM_ADADELTA_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdadelta(
    std::vector<OptimizedParameter> parameters, const AdadeltaOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_ADADELTA_H_
