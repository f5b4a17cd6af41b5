#include "worker/optim/optimizers.h"

#include <utility>

namespace muster::optim {
namespace {

// Each optimizer: its options from the job file, and its factory.

ChosenOptimizer Chosen(const v1::AdamwSpec& spec) {
  return {spec.lr(), AdamWOptions{.beta1 = spec.betas(0),
                                  .beta2 = spec.betas(1),
                                  .eps = spec.eps(),
                                  .weight_decay = spec.weight_decay()}};
}
constexpr auto FactoryOf(const AdamWOptions&) { return &CreateAdamW; }

ChosenOptimizer Chosen(const v1::SgdSpec& spec) {
  return {spec.lr(), SgdOptions{.momentum = spec.momentum(),
                                .weight_decay = spec.weight_decay(),
                                .nesterov = spec.nesterov()}};
}
constexpr auto FactoryOf(const SgdOptions&) { return &CreateSgd; }

ChosenOptimizer Chosen(const v1::LionSpec& spec) {
  return {spec.lr(),
          LionOptions{
              .beta1 = spec.betas(0), .beta2 = spec.betas(1), .weight_decay = spec.weight_decay()}};
}
constexpr auto FactoryOf(const LionOptions&) { return &CreateLion; }

}  // namespace

absl::StatusOr<ChosenOptimizer> OptimizerFromSpec(const v1::OptimizerSpec& spec) {
  switch (spec.kind_case()) {
    case v1::OptimizerSpec::kAdamw:
      return Chosen(spec.adamw());
    case v1::OptimizerSpec::kSgd:
      return Chosen(spec.sgd());
    case v1::OptimizerSpec::kLion:
      return Chosen(spec.lion());
    case v1::OptimizerSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("optimizer: no known alternative is set");
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    std::vector<OptimizedParameter> parameters, const OptimizerOptions& options) {
  return std::visit(
      [&parameters](const auto& of_kind) {
        return FactoryOf(of_kind)(std::move(parameters), of_kind);
      },
      options);
}

}  // namespace muster::optim
