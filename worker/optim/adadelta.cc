// Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012), as torch.optim.Adadelta:
//   g += weight_decay * p
//   s  = rho * s + (1 - rho) * g^2                 the running mean of the squared gradient
//   d  = sqrt(a + eps) / sqrt(s + eps) * g
//   a  = rho * a + (1 - rho) * d^2                 the running mean of the squared change
//   p -= lr * d
// s (square_avg) and a (acc_delta) start at zero. The steps are counted, as torch does, but their
// number has no effect.
#include <cmath>
#include <cstdint>
#include <utility>

#include "ATen/TensorOperators.h"
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
  T rho, rest;  // rest: 1 - rho
  T eps;
  T decay;
  T rate;
};

// The tensors of a parameter that a step uses and changes.
struct Tensors {
  at::Tensor gradient, parameter, square_avg, acc_delta, step;
};

template <typename T>
void StepElements(const Numbers<T>& by, int64_t count, const T* gradients, T* parameters,
                  T* square_avgs, T* acc_deltas) {
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradients[i] + parameters[i] * by.decay;
    const T square = square_avgs[i] * by.rho + g * by.rest * g;
    const T delta = std::sqrt(acc_deltas[i] + by.eps) / std::sqrt(square + by.eps) * g;
    square_avgs[i] = square;
    acc_deltas[i] = acc_deltas[i] * by.rho + delta * by.rest * delta;
    parameters[i] = parameters[i] - delta * by.rate;
  }
}

template <typename T>
void StepTensor(const AdadeltaOptions& options, const ParameterClass& alike, double rate,
                const Tensors& of, const at::Tensor& skip) {
  const Numbers<T> by = {.rho = static_cast<T>(options.rho),
                         .rest = static_cast<T>(1 - options.rho),
                         .eps = static_cast<T>(options.eps),
                         .decay = static_cast<T>(alike.weight_decay),
                         .rate = static_cast<T>(rate)};
  if (!of.parameter.is_cpu()) {
    const c10::NoGradGuard no_grad;
    const at::Tensor g = of.gradient + of.parameter * by.decay;
    const at::Tensor square = (of.square_avg * by.rho).add_((g * by.rest).mul_(g));
    const at::Tensor delta =
        (of.acc_delta + by.eps).sqrt_().div_((square + by.eps).sqrt_()).mul_(g);
    Assign(of.square_avg, square, skip);
    Assign(of.acc_delta, (of.acc_delta * by.rho).add_((delta * by.rest).mul_(delta)), skip);
    Assign(of.parameter, of.parameter - delta * by.rate, skip);
    Assign(of.step, of.step + 1, skip);
    return;
  }
  if (skip.defined() && device::HostValues<float>(skip)[0] == 1.0f) return;
  of.parameter.unsafeGetTensorImpl()->bump_version();  // as an operation of torch's in place does
  StepElements(by, of.parameter.numel(), device::HostValues<T>(of.gradient).data(),
               device::MutableHostValues<T>(of.parameter).data(),
               device::MutableHostValues<T>(of.square_avg).data(),
               device::MutableHostValues<T>(of.acc_delta).data());
  device::MutableHostValues<float>(of.step)[0] += 1.0f;
}

class Adadelta : public ListOptimizer {
 public:
  Adadelta(ParameterList parameters, const AdadeltaOptions& options)
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
        step(options_, alike, rate,
             {of.gradients[k], list().tensors[i], state(0)[i], state(1)[i], state(2)[i]}, of.skip);
      }
    }
    return absl::OkStatus();
  }

  const AdadeltaOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdadelta(
    std::vector<OptimizedParameter> parameters, const AdadeltaOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters), options));
  return std::make_unique<Adadelta>(std::move(list), options);
}

}  // namespace muster::optim
