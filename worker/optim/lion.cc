// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023):
//   p = p * (1 - lr * weight_decay) - lr * sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g   (m starts at zero)
// The sign of 0 is 0. A gradient or an m that is not a number makes the parameter NaN, so that
// people notice.
#include <cstdint>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/sign.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/optim/factories.h"
#include "worker/optim/parameter_list.h"

namespace muster::optim {
namespace {

// The numbers of a step in the type of the parameter. Each element is computed by itself, so that
// pieces have the bits of the whole.
template <typename T>
struct Numbers {
  T kept;  // 1 - lr * weight_decay
  T rate;
  T beta1, rest1;  // rest: 1 - beta
  T beta2, rest2;
};

template <typename T>
void StepElements(const Numbers<T>& by, int64_t count, const T* gradients, T* parameters,
                  T* averages) {
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradients[i];
    const T m = averages[i];
    const T direction = by.beta1 * m + by.rest1 * g;
    // The step is zero for zero, and NaN for NaN.
    const T step = direction > 0 ? by.rate : direction < 0 ? -by.rate : direction;
    parameters[i] = parameters[i] * by.kept - step;
    averages[i] = by.beta2 * m + by.rest2 * g;
  }
}

template <typename T>
void StepTensor(const LionOptions& options, const ParameterClass& alike, double rate,
                const at::Tensor& gradient, const at::Tensor& parameter, const at::Tensor& average,
                const at::Tensor& skip) {
  const Numbers<T> by = {.kept = static_cast<T>(1 - rate * alike.weight_decay),
                         .rate = static_cast<T>(rate),
                         .beta1 = static_cast<T>(options.beta1),
                         .rest1 = static_cast<T>(1 - options.beta1),
                         .beta2 = static_cast<T>(options.beta2),
                         .rest2 = static_cast<T>(1 - options.beta2)};
  if (!parameter.is_cpu() || skip.defined()) {
    const c10::NoGradGuard no_grad;
    const at::Tensor direction = (average * by.beta1).add_(gradient * by.rest1);
    Assign(parameter, (parameter * by.kept).sub_(direction.sign() * by.rate), skip);
    Assign(average, (average * by.beta2).add_(gradient * by.rest2), skip);
    return;
  }
  parameter.unsafeGetTensorImpl()->bump_version();  // as an operation of torch's in place does
  StepElements(by, parameter.numel(), device::HostValues<T>(gradient).data(),
               device::MutableHostValues<T>(parameter).data(),
               device::MutableHostValues<T>(average).data());
}

class Lion : public ListOptimizer {
 public:
  Lion(ParameterList parameters, const LionOptions& options)
      : ListOptimizer(std::move(parameters), options), options_(options) {}

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const LeftOut& left_out) override {
    ASSIGN_OR_RETURN(const auto all, Gradients(list(), bucket, left_out.skip, left_out.unused));
    for (const ClassGradients& of : all) {
      const ParameterClass& alike = list().classes[of.number];
      const double rate = learning_rate * alike.lr_scale;
      const auto step = alike.type == at::kDouble ? StepTensor<double> : StepTensor<float>;
      for (size_t k = 0; k < of.gradients.size(); ++k) {
        const size_t i = alike.members[of.position(k)];
        step(options_, alike, rate, of.gradients[k], list().tensors[i], state(0)[i], of.skip);
      }
    }
    return absl::OkStatus();
  }

  const LionOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateLion(std::vector<OptimizedParameter> parameters,
                                                      const LionOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters), options));
  return std::make_unique<Lion>(std::move(list), options);
}

}  // namespace muster::optim
