#include "worker/optim/parameter_list.h"

#include <unordered_set>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/memory/memory_scope.h"

namespace muster::optim {

namespace {

void AddToClass(size_t index, at::ScalarType type, double weight_decay, double lr_scale,
                std::vector<ParameterClass>* classes) {
  for (ParameterClass& existing : *classes) {
    if (existing.type == type && existing.weight_decay == weight_decay &&
        existing.lr_scale == lr_scale) {
      existing.members.push_back(index);
      return;
    }
  }
  classes->push_back({type, weight_decay, lr_scale, {index}});
}

absl::Status CheckState(const OptimizedParameter& parameter, const std::vector<StateSlot>& slots) {
  if (parameter.state.empty()) return absl::OkStatus();
  bool fits = parameter.state.size() == slots.size();
  for (size_t i = 0; fits && i < slots.size(); ++i) {
    const at::Tensor& tensor = parameter.state[i];
    fits = tensor.is_contiguous() &&
           (slots[i].scalar ? tensor.scalar_type() == at::kFloat && tensor.dim() == 0
                            : tensor.scalar_type() == parameter.tensor.scalar_type() &&
                                  tensor.sizes() == parameter.tensor.sizes());
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the state of parameter '", parameter.name,
                                                 "' is of another shape, type or optimizer"));
}

}  // namespace

absl::StatusOr<ParameterList> MakeParameterList(std::vector<OptimizedParameter> parameters,
                                                double weight_decay,
                                                const std::vector<StateSlot>& slots) {
  ParameterList list;
  std::unordered_set<std::string> names;
  for (OptimizedParameter& parameter : parameters) {
    auto& [name, tensor, own_decay, lr_scale, state] = parameter;
    if (!tensor.defined() || !tensor.device().is_cpu() || !tensor.is_contiguous() ||
        (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", name, "' is not dense float32 or float64 on the CPU"));
    }
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' appears twice"));
    }
    const double decay = own_decay.value_or(weight_decay);
    for (const auto& [what, value] :
         {std::pair("weight_decay", decay), std::pair("lr_scale", lr_scale)}) {
      if (value >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(what, " of parameter '", name, "' is ", value, ", allowed is >= 0"));
    }
    RETURN_IF_ERROR(CheckState(parameter, slots));
    AddToClass(list.names.size(), tensor.scalar_type(), decay, lr_scale, &list.classes);
    list.names.push_back(std::move(name));
    list.tensors.push_back(std::move(tensor));
    list.states.push_back(std::move(state));
  }
  return list;
}

absl::StatusOr<std::vector<at::Tensor>> Gradients(const ParameterList& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.tensors.size());
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor& gradient = parameters.tensors[i].grad();
    if (!gradient.defined()) {
      return absl::FailedPreconditionError(
          absl::StrCat("parameter '", parameters.names[i], "' has no gradient"));
    }
    if (gradient.sizes() != parameters.tensors[i].sizes() ||
        gradient.scalar_type() != parameters.tensors[i].scalar_type() ||
        !gradient.is_contiguous()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the gradient of parameter '", parameters.names[i], "' has another shape or type"));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

std::vector<at::Tensor> Select(const std::vector<at::Tensor>& tensors,
                               const ParameterClass& members) {
  std::vector<at::Tensor> selected;
  selected.reserve(members.members.size());
  for (const size_t index : members.members) selected.push_back(tensors[index]);
  return selected;
}

std::vector<at::Tensor> StateOf(const ParameterList& parameters, size_t slot, bool scalar) {
  const memory::MemoryScope scope(memory::Purpose::kMoments);
  std::vector<at::Tensor> state;
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor& tensor = parameters.tensors[i];
    if (!parameters.states[i].empty()) {
      state.push_back(parameters.states[i][slot]);
    } else if (scalar) {
      state.push_back(at::zeros({}, at::TensorOptions(at::kFloat)));
    } else {
      state.push_back(at::zeros(tensor.sizes(), at::TensorOptions(tensor.scalar_type())));
    }
  }
  return state;
}

}  // namespace muster::optim
