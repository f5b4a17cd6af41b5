#include "worker/models/recompute.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "c10/core/GradMode.h"
#include "torch/csrc/autograd/autograd.h"
#include "torch/csrc/autograd/custom_function.h"
#include "worker/device/memory.h"
#include "worker/models/autocast_state.h"

namespace muster::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The state that a forward depends on, besides its inputs and the unit's buffers.
struct Surroundings {
  Mode mode;
  at::Tensor generator;
  AutocastState autocast;
};

Surroundings Now(ForwardContext& context) {
  return {.mode = context.training() ? Mode::kTrain : Mode::kEvaluate,
          .generator = context.generator().get_state(),
          .autocast = AutocastState::Now(context.generator().device().type())};
}

void Set(const Surroundings& surroundings, ForwardContext& context) {
  context.set_mode(surroundings.mode);
  context.generator().set_state(surroundings.generator);
  surroundings.autocast.Set();
}

std::vector<at::Tensor> CopyBuffers(const Unit& unit) {
  std::vector<at::Tensor> copies;
  for (const Buffer& buffer : unit.Buffers()) copies.push_back(buffer.tensor.clone());
  return copies;
}

// Copies bytes, so that no version counter changes: graphs may have saved the buffers.
void SetBuffers(const Unit& unit, const std::vector<at::Tensor>& values) {
  const auto buffers = unit.Buffers();
  for (size_t i = 0; i < buffers.size(); ++i) device::CopyAll(buffers[i].tensor, values[i]);
}

struct Recomputation : torch::CustomClassHolder {
  Recomputation(Unit* unit, ForwardContext* context)
      : unit(unit), context(context), before(Now(*context)), buffers(CopyBuffers(*unit)) {}
  Unit* const unit;
  ForwardContext* const context;
  const Surroundings before;
  const std::vector<at::Tensor> buffers;
};

// Gives the unit's buffers, during the life of the object, their values from before the forward.
class BuffersOfTheForward {
 public:
  explicit BuffersOfTheForward(const Recomputation& recomputation)
      : unit_(*recomputation.unit), now_(CopyBuffers(unit_)) {
    SetBuffers(unit_, recomputation.buffers);
  }
  ~BuffersOfTheForward() { SetBuffers(unit_, now_); }
  BuffersOfTheForward(const BuffersOfTheForward&) = delete;
  BuffersOfTheForward& operator=(const BuffersOfTheForward&) = delete;

 private:
  const Unit& unit_;
  const std::vector<at::Tensor> now_;
};

// Restores, during the life of the object, the Surroundings of the forward.
class SurroundingsOfTheForward {
 public:
  explicit SurroundingsOfTheForward(const Recomputation& recomputation)
      : context_(*recomputation.context), now_(Now(context_)) {
    Surroundings before = recomputation.before;
    // A kept cast would bring its gradient to other users in this graph.
    before.autocast.keeps_casts = false;
    Set(before, context_);
  }
  ~SurroundingsOfTheForward() { Set(now_, context_); }
  SurroundingsOfTheForward(const SurroundingsOfTheForward&) = delete;
  SurroundingsOfTheForward& operator=(const SurroundingsOfTheForward&) = delete;

 private:
  ForwardContext& context_;
  const Surroundings now_;
};

// Runs a forward that backward repeats. `wanted` requires a gradient. So autograd calls backward
// even if only parameters, and no inputs, require a gradient.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const at::Tensor& wanted,
                               c10::intrusive_ptr<Recomputation> recomputation) {
    const Tensors all = inputs.vec();
    context->save_for_backward(all);
    // An output outside of the loss brings no gradient instead of zeros.
    context->set_materialize_grads(false);
    std::vector<int64_t> versions;
    for (const at::Tensor& x : all) versions.push_back(x._version());
    Tensors outputs = recomputation->unit->ForwardMany(all, *recomputation->context);
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i]._version() == versions[i]) continue;
      throw ModelError("unit '" + recomputation->unit->name() +
                       "' changes its input in place, so its forward cannot be repeated: take it "
                       "out of activation_checkpointing");
    }
    context->saved_data["recomputation"] = c10::IValue::make_capsule(std::move(recomputation));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto capsule = context->saved_data["recomputation"].toCapsule();
    const auto& recomputation = static_cast<const Recomputation&>(*capsule);
    Tensors inputs;
    for (const at::Tensor& x : context->get_saved_variables()) {
      inputs.push_back(x.detach().requires_grad_(x.requires_grad()));
    }
    UseObserver* const observer = recomputation.context->use_observer();
    if (observer != nullptr) observer->BeforeRecomputation();
    // These values stay during the backward, too, because an operation may have saved the buffers.
    const BuffersOfTheForward buffers(recomputation);
    Tensors outputs;
    {
      const c10::AutoGradMode with_gradients(true);
      const SurroundingsOfTheForward surroundings(recomputation);
      const ForwardContext::Recomputing recomputing(recomputation.context);
      outputs = recomputation.unit->ForwardMany(inputs, *recomputation.context);
    }
    if (outputs.size() != gradients.size()) {
      throw ModelError(
          "unit '" + recomputation.unit->name() + "' returns " + std::to_string(outputs.size()) +
          " tensors when its forward is repeated, and " + std::to_string(gradients.size()) +
          " before: take it out of activation_checkpointing");
    }
    Tensors begins, begins_gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      begins.push_back(outputs[i]);
      begins_gradients.push_back(gradients[i]);
    }
    if (!begins.empty()) torch::autograd::backward(begins, begins_gradients);
    variable_list found;
    for (const at::Tensor& input : inputs) found.push_back(input.grad());
    found.resize(inputs.size() + 2);  // no gradients for `wanted` and the recomputation
    return found;
  }
};

}  // namespace

Tensors ForwardRecomputed(Unit& unit, const Tensors& inputs, ForwardContext& context) {
  bool wanted = false;
  for (const at::Tensor& x : inputs) wanted |= x.requires_grad();
  for (const Parameter& parameter : unit.Parameters()) wanted |= parameter.tensor.requires_grad();
  if (!wanted) return unit.ForwardMany(inputs, context);
  return Recomputed::apply(at::TensorList(inputs), at::empty({0}).requires_grad_(true),
                           c10::make_intrusive<Recomputation>(&unit, &context));
}

}  // namespace muster::models
