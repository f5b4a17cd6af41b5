#include "worker/optim/mixed.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/status/status.h"
#include "worker/optim/optimizers.h"

namespace muster::optim {
namespace {

class Mixed : public Optimizer {
 public:
  // `names`: of all parameters, in their order.
  Mixed(std::vector<std::string> names, std::vector<std::unique_ptr<Optimizer>> parts)
      : names_(std::move(names)), parts_(std::move(parts)) {}

  absl::Status CheckGradients(std::optional<size_t> bucket) const override {
    for (const auto& part : parts_) RETURN_IF_ERROR(part->CheckGradients(bucket));
    return absl::OkStatus();
  }

  std::vector<NamedTensor> State() override {
    std::unordered_map<std::string, std::vector<NamedTensor>> by_name;
    for (const auto& part : parts_) {
      for (NamedTensor& tensor : part->State()) {
        by_name[tensor.parameter].push_back(std::move(tensor));
      }
    }
    std::vector<NamedTensor> state;
    for (const std::string& name : names_) {
      for (NamedTensor& tensor : by_name[name]) state.push_back(std::move(tensor));
    }
    return state;
  }

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const at::Tensor& skip) override {
    // All of them before the first one changes anything.
    RETURN_IF_ERROR(CheckGradients(bucket));
    for (const auto& part : parts_) {
      RETURN_IF_ERROR(bucket.has_value() ? part->StepBucket(*bucket, learning_rate)
                                         : part->Step(learning_rate, skip));
    }
    return absl::OkStatus();
  }

  const std::vector<std::string> names_;
  const std::vector<std::unique_ptr<Optimizer>> parts_;
};

struct Part {
  OptimizerOptions options;  // with a weight decay of 0
  std::vector<OptimizedParameter> parameters;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateMixed(
    std::vector<ParameterWithOptions> parameters) {
  std::vector<std::string> names;
  std::vector<Part> parts;
  for (auto& [parameter, options] : parameters) {
    names.push_back(parameter.name);
    parameter.weight_decay = WeightDecayOf(options);
    SetWeightDecay(0, &options);
    auto part = std::find_if(parts.begin(), parts.end(), [&options = options](const Part& each) {
      return each.options == options;
    });
    if (part == parts.end()) part = parts.insert(part, {options, {}});
    part->parameters.push_back(std::move(parameter));
  }
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (Part& part : parts) {
    ASSIGN_OR_RETURN(auto optimizer, CreateOptimizer(std::move(part.parameters), part.options));
    optimizers.push_back(std::move(optimizer));
  }
  if (optimizers.size() == 1) return std::move(optimizers[0]);
  return std::make_unique<Mixed>(std::move(names), std::move(optimizers));
}

}  // namespace muster::optim
