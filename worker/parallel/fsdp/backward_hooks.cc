#include "worker/parallel/fsdp/backward_hooks.h"

#include "torch/csrc/autograd/custom_function.h"

namespace muster::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The identity; its backward calls the observer.
struct Observed : torch::autograd::Function<Observed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t observer,
                            int64_t call) {
    context->saved_data["observer"] = observer;
    context->saved_data["call"] = call;
    return x;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    reinterpret_cast<BackwardObserver*>(context->saved_data["observer"].toInt())
        ->AfterBackward(context->saved_data["call"].toInt());
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor ObserveInput(const at::Tensor& x, BackwardObserver* observer, int64_t call) {
  return Observed::apply(x, reinterpret_cast<int64_t>(observer), call);
}

void ObserveOutput(const at::Tensor& y, BackwardObserver* observer, int64_t call) {
  y.register_hook([observer, call](const at::TensorBase&) { observer->BeforeBackward(call); });
}

}  // namespace muster::parallel
