#include "worker/train/trainable.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "common/status/status.h"

namespace muster::train {

absl::StatusOr<Trainability> TrainabilityOf(const models::Model& model,
                                            const std::vector<TrainableRule>& rules) {
  std::vector<Trainability::Parameter> parameters;
  for (const auto& [name, tensor] : model.Parameters()) {
    const bool floating = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
    parameters.push_back({.name = name,
                          .trained = tensor.requires_grad(),
                          .can_be_trained = floating,
                          .elements = tensor.numel()});
  }
  return Trainability::Create(std::move(parameters), rules);
}

Mask FlagsOf(const std::vector<models::Parameter>& parameters) {
  Mask mask;
  mask.reserve(parameters.size());
  for (const auto& parameter : parameters) mask.push_back(parameter.tensor.requires_grad());
  return mask;
}

bool FlagsDiffer(const std::vector<models::Parameter>& parameters, const Mask& mask) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].tensor.requires_grad() != mask[i]) return true;
  }
  return false;
}

void SetFlags(const std::vector<models::Parameter>& parameters, const Mask& mask) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor tensor = parameters[i].tensor;
    if (tensor.requires_grad() != mask[i]) tensor.requires_grad_(mask[i]);
    if (!mask[i]) tensor.mutable_grad().reset();
  }
}

absl::Status ApplyRules(const std::vector<TrainableRule>& rules, const models::Model& model) {
  ASSIGN_OR_RETURN(const Trainability trainability, TrainabilityOf(model, rules));
  SetFlags(model.Parameters(), trainability.mask());
  return absl::OkStatus();
}

}  // namespace muster::train
