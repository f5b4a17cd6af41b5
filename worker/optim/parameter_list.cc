#include "worker/optim/parameter_list.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "ATen/ops/maximum.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/where.h"
#include "ATen/ops/zeros.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/memory/memory_scope.h"

namespace muster::optim {

namespace {

// Adds a parameter to the class with these settings, or to a new class.
void AddToClass(ParameterClass settings, size_t index, std::vector<ParameterClass>* classes) {
  for (ParameterClass& existing : *classes) {
    if (existing.bucket == settings.bucket && existing.type == settings.type &&
        existing.weight_decay == settings.weight_decay && existing.lr_scale == settings.lr_scale) {
      existing.members.push_back(index);
      return;
    }
  }
  settings.members = {index};
  classes->push_back(std::move(settings));
}

absl::Status CheckState(const OptimizedParameter& parameter, const std::vector<StateSlot>& slots) {
  if (parameter.state.empty()) return absl::OkStatus();
  bool fits = parameter.state.size() == slots.size();
  for (size_t i = 0; fits && i < slots.size(); ++i) {
    const at::Tensor& tensor = parameter.state[i];
    fits = tensor.is_contiguous() && tensor.device() == parameter.tensor.device() &&
           (slots[i].scalar ? tensor.scalar_type() == at::kFloat && tensor.dim() == 0
                            : tensor.scalar_type() == parameter.tensor.scalar_type() &&
                                  tensor.sizes() == parameter.tensor.sizes());
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the state of parameter '", parameter.name,
                   "' is of another shape, type, device or optimizer"));
}

}  // namespace

absl::StatusOr<ParameterList> MakeParameterList(std::vector<OptimizedParameter> parameters,
                                                const OptimizerOptions& options) {
  const std::vector<StateSlot> slots = SlotsOf(options);
  ParameterList list;
  std::unordered_set<std::string> names;
  for (OptimizedParameter& parameter : parameters) {
    auto& [name, tensor, own_decay, lr_scale, state, bucket] = parameter;
    if (!tensor.defined() || !tensor.is_contiguous() ||
        (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble)) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", name, "' is not dense float32 or float64"));
    }
    if (!list.tensors.empty() && tensor.device() != list.tensors.front().device()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", name, "' is on ", tensor.device().str(), ", but parameter '",
                       list.names.front(), "' is on ", list.tensors.front().device().str()));
    }
    if (!names.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' appears twice"));
    }
    const double decay = own_decay.value_or(WeightDecayOf(options));
    for (const auto& [what, value] :
         {std::pair("weight_decay", decay), std::pair("lr_scale", lr_scale)}) {
      if (value >= 0) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(what, " of parameter '", name, "' is ", value, ", allowed is >= 0"));
    }
    RETURN_IF_ERROR(CheckState(parameter, slots));
    AddToClass({bucket, tensor.scalar_type(), decay, lr_scale, {}}, list.names.size(),
               &list.classes);
    list.names.push_back(std::move(name));
    list.tensors.push_back(std::move(tensor));
    list.states.push_back(std::move(state));
  }
  return list;
}

namespace {

absl::StatusOr<at::Tensor> GradientOf(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor& gradient = tensor.grad();
  if (!gradient.defined()) {
    return absl::FailedPreconditionError(absl::StrCat("parameter '", name, "' has no gradient"));
  }
  if (gradient.sizes() != tensor.sizes() || gradient.scalar_type() != tensor.scalar_type() ||
      !gradient.is_contiguous()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the gradient of parameter '", name, "' has another shape or type"));
  }
  return gradient;
}

// Takes the members that are not updated, or that only the device decides about, out of `of_class`,
// which has the gradients of all members. Adds the latter to `alone`.
void TakeOut(const ParameterClass& alike, absl::Span<const at::Tensor> unused,
             ClassGradients* of_class, std::vector<ClassGradients>* alone) {
  const auto flagged = [&](size_t member) { return unused[member].defined(); };
  if (unused.empty() || absl::c_none_of(alike.members, flagged)) return;
  const std::vector<at::Tensor> gradients = std::move(of_class->gradients);
  of_class->gradients.clear();
  for (size_t k = 0; k < gradients.size(); ++k) {
    const at::Tensor& flag = unused[alike.members[k]];
    if (!flag.defined() || (flag.is_cpu() && device::HostValues<float>(flag)[0] == 0)) {
      of_class->chosen.push_back(k);
      of_class->gradients.push_back(gradients[k]);
    } else if (!flag.is_cpu()) {
      alone->push_back({of_class->number,
                        {k},
                        {gradients[k]},
                        of_class->skip.defined() ? at::maximum(of_class->skip, flag) : flag});
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<ClassGradients>> Gradients(const ParameterList& parameters,
                                                      std::optional<size_t> bucket,
                                                      const at::Tensor& skip,
                                                      absl::Span<const at::Tensor> unused) {
  std::vector<ClassGradients> all;
  std::vector<ClassGradients> alone;
  for (size_t number = 0; number < parameters.classes.size(); ++number) {
    const ParameterClass& alike = parameters.classes[number];
    if (bucket.has_value() && alike.bucket != *bucket) continue;
    ClassGradients own{.number = number, .chosen = {}, .gradients = {}, .skip = skip};
    own.gradients.reserve(alike.members.size());
    for (const size_t i : alike.members) {
      ASSIGN_OR_RETURN(at::Tensor gradient, GradientOf(parameters.names[i], parameters.tensors[i]));
      own.gradients.push_back(std::move(gradient));
    }
    TakeOut(alike, unused, &own, &alone);
    if (!own.gradients.empty()) all.push_back(std::move(own));
  }
  std::move(alone.begin(), alone.end(), std::back_inserter(all));
  return all;
}

void Assign(at::Tensor tensor, const at::Tensor& value, const at::Tensor& skip) {
  tensor.copy_(skip.defined() ? at::where(skip.ne(0), tensor, value) : value);
}

namespace {

std::vector<at::Tensor> StateOf(const ParameterList& list, size_t slot, bool scalar) {
  const memory::MemoryScope scope(memory::Purpose::kMoments);
  std::vector<at::Tensor> state;
  for (size_t i = 0; i < list.tensors.size(); ++i) {
    const at::Tensor& tensor = list.tensors[i];
    if (!list.states[i].empty()) {
      state.push_back(list.states[i][slot]);
    } else if (scalar) {
      state.push_back(at::zeros({}, at::TensorOptions(at::kFloat).device(tensor.device())));
    } else {
      state.push_back(at::zeros(tensor.sizes(),
                                at::TensorOptions(tensor.scalar_type()).device(tensor.device())));
    }
  }
  return state;
}

}  // namespace

ListOptimizer::ListOptimizer(ParameterList parameters, const OptimizerOptions& options)
    : list_(std::move(parameters)), slots_(SlotsOf(options)) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    states_.push_back(StateOf(list_, slot, slots_[slot].scalar));
  }
}

std::vector<NamedTensor> ListOptimizer::State() {
  std::vector<NamedTensor> state;
  for (size_t i = 0; i < list_.names.size(); ++i) {
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      state.push_back({list_.names[i], slots_[slot].name, states_[slot][i]});
    }
  }
  return state;
}

std::vector<std::vector<at::Tensor>> ListOptimizer::TensorsOf(const ClassGradients& of) const {
  const std::vector<size_t>& members = list_.classes[of.number].members;
  std::vector<std::vector<at::Tensor>> all(1 + states_.size());
  for (auto& tensors : all) tensors.reserve(of.gradients.size());
  for (size_t k = 0; k < of.gradients.size(); ++k) {
    const size_t i = members[of.position(k)];
    all[0].push_back(list_.tensors[i]);
    for (size_t slot = 0; slot < states_.size(); ++slot) all[1 + slot].push_back(states_[slot][i]);
  }
  return all;
}

absl::Status ListOptimizer::CheckGradients(std::optional<size_t> bucket) const {
  return Gradients(list_, bucket).status();
}

}  // namespace muster::optim
