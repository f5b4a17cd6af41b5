// All optimizers, the one place that lists them: what a job file calls each, and how it is made.
#ifndef MUSTER_WORKER_OPTIM_OPTIMIZERS_H_
#define MUSTER_WORKER_OPTIM_OPTIMIZERS_H_

#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/optim/adamw.h"
#include "worker/optim/lion.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/sgd.h"

namespace muster::optim {

using OptimizerOptions = std::variant<AdamWOptions, SgdOptions, LionOptions>;

// What a job file chose. The learning rate stands apart because schedules and commands change it.
struct ChosenOptimizer {
  double lr = 0;
  OptimizerOptions options;
};

// spec: with its defaults, and valid (common/jobspec). INVALID_ARGUMENT: none is chosen that this
// program knows.
absl::StatusOr<ChosenOptimizer> OptimizerFromSpec(const v1::OptimizerSpec& spec);

// INVALID_ARGUMENT names the parameter that does not fit.
absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    std::vector<OptimizedParameter> parameters, const OptimizerOptions& options);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_OPTIMIZERS_H_
