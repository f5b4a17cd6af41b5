// The one list of all optimizers.
#ifndef MUSTER_WORKER_OPTIM_OPTIMIZERS_H_
#define MUSTER_WORKER_OPTIM_OPTIMIZERS_H_

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/factories.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"

namespace muster::optim {

// The factory of each optimizer. If an alternative has none, CreateOptimizer does not compile.
inline auto FactoryOf(const AdamWOptions&) { return &CreateAdamW; }
inline auto FactoryOf(const SgdOptions&) { return &CreateSgd; }
inline auto FactoryOf(const LionOptions&) { return &CreateLion; }
inline auto FactoryOf(const AdamOptions&) { return &CreateAdam; }
inline auto FactoryOf(const AdadeltaOptions&) { return &CreateAdadelta; }

// INVALID_ARGUMENT: a parameter does not fit; the message names it.
inline absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    std::vector<OptimizedParameter> parameters, const OptimizerOptions& options) {
  return std::visit(
      [&parameters](const auto& own) { return FactoryOf(own)(std::move(parameters), own); },
      options);
}

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_OPTIMIZERS_H_
