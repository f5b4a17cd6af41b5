#include "worker/optim/optimizers.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "common/status/status.h"
#include "worker/optim/factories.h"

namespace muster::optim {
namespace {

// Returns the factory of each optimizer. CreateOptimizer does not compile if an alternative has no
// factory.
auto FactoryOf(const AdamWOptions&) { return &CreateAdamW; }
auto FactoryOf(const SgdOptions&) { return &CreateSgd; }
auto FactoryOf(const LionOptions&) { return &CreateLion; }
auto FactoryOf(const AdamOptions&) { return &CreateAdam; }
auto FactoryOf(const AdadeltaOptions&) { return &CreateAdadelta; }

class Mixed : public Optimizer {
 public:
  struct Part {
    std::unique_ptr<Optimizer> optimizer;
    std::vector<size_t> indices;  // indices of the part's parameters among all, in order
  };
  // `names`: the names of all parameters, in order.
  Mixed(std::vector<std::string> names, std::vector<Part> parts)
      : names_(std::move(names)), parts_(std::move(parts)) {}

  absl::Status CheckGradients(std::optional<size_t> bucket) const override {
    for (const Part& part : parts_) RETURN_IF_ERROR(part.optimizer->CheckGradients(bucket));
    return absl::OkStatus();
  }

  std::vector<NamedTensor> State() override {
    std::unordered_map<std::string, std::vector<NamedTensor>> by_name;
    for (const Part& part : parts_) {
      for (NamedTensor& tensor : part.optimizer->State()) {
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
                      const LeftOut& left_out) override {
    // All gradients are checked before anything changes.
    RETURN_IF_ERROR(CheckGradients(bucket));
    for (const auto& [optimizer, indices] : parts_) {
      std::vector<at::Tensor> unused;
      if (!left_out.unused.empty()) {
        for (const size_t index : indices) unused.push_back(left_out.unused[index]);
      }
      RETURN_IF_ERROR(bucket.has_value() ? optimizer->StepBucket(*bucket, learning_rate, unused)
                                         : optimizer->Step(learning_rate, left_out.skip, unused));
    }
    return absl::OkStatus();
  }

  const std::vector<std::string> names_;
  const std::vector<Part> parts_;
};

struct Alike {
  OptimizerOptions options;  // with a weight decay of 0
  std::vector<OptimizedParameter> parameters;
  std::vector<size_t> indices;  // indices of these parameters
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateOptimizer(
    std::vector<OptimizedParameter> parameters, const OptimizerOptions& options) {
  return std::visit(
      [&parameters](const auto& own) { return FactoryOf(own)(std::move(parameters), own); },
      options);
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateMixed(
    std::vector<ParameterWithOptions> parameters) {
  std::vector<std::string> names;
  std::vector<Alike> alike;
  for (auto& [parameter, options] : parameters) {
    parameter.weight_decay = WeightDecayOf(options);
    SetWeightDecay(0, &options);
    auto group = std::find_if(alike.begin(), alike.end(), [&options = options](const Alike& each) {
      return each.options == options;
    });
    if (group == alike.end()) group = alike.insert(group, {options, {}, {}});
    group->indices.push_back(names.size());
    names.push_back(parameter.name);
    group->parameters.push_back(std::move(parameter));
  }
  std::vector<Mixed::Part> parts;
  for (Alike& group : alike) {
    ASSIGN_OR_RETURN(auto optimizer, CreateOptimizer(std::move(group.parameters), group.options));
    parts.push_back({std::move(optimizer), std::move(group.indices)});
  }
  if (parts.size() == 1) return std::move(parts[0].optimizer);
  return std::make_unique<Mixed>(std::move(names), std::move(parts));
}

}  // namespace muster::optim
