// AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019), as torch.optim.AdamW:
//   p *= 1 - lr * weight_decay
//   m  = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// The step is one fused pass. t is kept per parameter.
//
// Adam (Kingma & Ba, "Adam: A Method for Stochastic Optimization", 2015), as torch.optim.Adam: the
// same steps, but the decay is a part of the gradient: g += weight_decay * p replaces the first
// line.
#include <tuple>
#include <utility>

#include "ATen/ops/_foreach_add.h"
#include "ATen/ops/_fused_adam.h"
#include "ATen/ops/_fused_adamw.h"
#include "ATen/ops/neg.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/optim/factories.h"
#include "worker/optim/parameter_list.h"

namespace muster::optim {
namespace {

// Adds 1 to each number of steps, or 0 if `skip` is 1.
void Count(const std::vector<at::Tensor>& steps, const at::Tensor& skip) {
  if (skip.defined()) return at::_foreach_add_(steps, skip.neg().add(1));
  if (!steps.front().is_cpu()) return at::_foreach_add_(steps, 1);
  // The loop avoids the cost of a dispatch, because models have hundreds of small parameters.
  for (const at::Tensor& step : steps) device::MutableHostValues<float>(step)[0] += 1.0f;
}

// The optimizer of both kinds.
class Adam : public ListOptimizer {
 public:
  // `decoupled`: the decay is no part of the gradient (AdamW).
  Adam(ParameterList parameters, const AdamOptions& options, bool decoupled)
      : ListOptimizer(std::move(parameters), options), options_(options), decoupled_(decoupled) {}

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const LeftOut& left_out) override {
    ASSIGN_OR_RETURN(const auto all, Gradients(list(), bucket, left_out.skip, left_out.unused));
    c10::NoGradGuard no_grad;
    for (const ClassGradients& of : all) {
      const ParameterClass& alike = list().classes[of.number];
      const auto tensors = TensorsOf(of);
      const auto& [parameters, exp_avgs, exp_avg_sqs, steps] =
          std::tie(tensors[0], tensors[1], tensors[2], tensors[3]);
      Count(steps, of.skip);
      const double rate = learning_rate * alike.lr_scale;
      if (decoupled_) {
        at::_fused_adamw_(parameters, of.gradients, exp_avgs, exp_avg_sqs, {}, steps, rate,
                          options_.beta1, options_.beta2, alike.weight_decay, options_.eps,
                          /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, Given(of.skip));
      } else {
        at::_fused_adam_(parameters, of.gradients, exp_avgs, exp_avg_sqs, {}, steps, rate,
                         options_.beta1, options_.beta2, alike.weight_decay, options_.eps,
                         /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/{}, Given(of.skip));
      }
    }
    return absl::OkStatus();
  }

  const AdamOptions options_;
  const bool decoupled_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(std::vector<OptimizedParameter> parameters,
                                                      const AdamOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters), options));
  return std::make_unique<Adam>(std::move(list), options, /*decoupled=*/false);
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(std::vector<OptimizedParameter> parameters,
                                                       const AdamWOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters), options));
  const AdamOptions same = {options.beta1, options.beta2, options.eps, options.weight_decay};
  return std::make_unique<Adam>(std::move(list), same, /*decoupled=*/true);
}

}  // namespace muster::optim
