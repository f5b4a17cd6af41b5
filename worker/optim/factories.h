// The optimizers of each kind. Each optimizer's file begins with its formula and its source.
#ifndef MUSTER_WORKER_OPTIM_FACTORIES_H_
#define MUSTER_WORKER_OPTIM_FACTORIES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdadelta(
    std::vector<OptimizedParameter> parameters, const AdadeltaOptions& options);
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(std::vector<OptimizedParameter> parameters,
                                                      const AdamOptions& options);
absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(std::vector<OptimizedParameter> parameters,
                                                       const AdamWOptions& options);
absl::StatusOr<std::unique_ptr<Optimizer>> CreateLion(std::vector<OptimizedParameter> parameters,
                                                      const LionOptions& options);
absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_FACTORIES_H_
