#include "worker/parallel/fsdp/backward_hooks.h"

#include "torch/csrc/autograd/custom_function.h"

namespace muster::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The identity; its backward calls the observer.
struct Observed : torch::autograd::Function<Observed> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, int64_t observer,
                               int64_t call) {
    context->saved_data["observer"] = observer;
    context->saved_data["call"] = call;
    // An input that is not used gets no gradient, and not zeros.
    context->set_materialize_grads(false);
    return inputs.vec();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    reinterpret_cast<BackwardObserver*>(context->saved_data["observer"].toInt())
        ->AfterBackward(context->saved_data["call"].toInt());
    gradients.resize(gradients.size() + 2);  // nothing for the observer and the call
    return gradients;
  }
};

}  // namespace

models::Tensors ObserveInputs(const models::Tensors& inputs, BackwardObserver* observer,
                              int64_t call) {
  models::Tensors observed;
  for (const at::Tensor& x : inputs) {
    if (x.requires_grad()) observed.push_back(x);
  }
  if (observed.empty()) return inputs;
  observed = Observed::apply(at::TensorList(observed), reinterpret_cast<int64_t>(observer), call);
  models::Tensors all = inputs;
  auto next = observed.begin();
  for (at::Tensor& x : all) {
    if (x.requires_grad()) x = *next++;
  }
  return all;
}

int ObserveOutputs(const models::Tensors& outputs, BackwardObserver* observer, int64_t call) {
  int observed = 0;
  for (const at::Tensor& y : outputs) {
    if (!y.requires_grad()) continue;
    y.register_hook([observer, call](const at::TensorBase&) { observer->BeforeBackward(call); });
    ++observed;
  }
  return observed;
}

}  // namespace muster::parallel
