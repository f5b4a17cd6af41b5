// Creates an optimizer of any kind, or a mixed optimizer whose parameters have different options or
// kinds.
#ifndef MUSTER_WORKER_OPTIM_OPTIMIZERS_H_
#define MUSTER_WORKER_OPTIM_OPTIMIZERS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    std::vector<OptimizedParameter> parameters, const OptimizerOptions& options);

struct ParameterWithOptions {
  OptimizedParameter parameter;  // its name is unique; its own weight decay is not used
  OptimizerOptions options;
};

// Creates an optimizer that updates each parameter to the same bits as CreateOptimizer with its
// options. Parameters whose options differ only in the weight decay share an optimizer.
// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateMixed(
    std::vector<ParameterWithOptions> parameters);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_OPTIMIZERS_H_
