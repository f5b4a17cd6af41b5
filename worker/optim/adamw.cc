#include "worker/optim/adamw.h"

#include <utility>

#include "ATen/ops/_foreach_add.h"
#include "ATen/ops/_fused_adam.h"
#include "ATen/ops/_fused_adamw.h"
#include "ATen/ops/neg.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/optim/parameter_list.h"

namespace muster::optim {
namespace {

// Adds 1 to each number of steps, and 0 if `skip` is 1.
void Count(const std::vector<at::Tensor>& steps, const at::Tensor& skip) {
  if (skip.defined()) return at::_foreach_add_(steps, skip.neg().add(1));
  if (!steps.front().is_cpu()) return at::_foreach_add_(steps, 1);
  // Without the cost of a dispatch, because models have hundreds of small parameters.
  for (const at::Tensor& step : steps) device::MutableHostValues<float>(step)[0] += 1.0f;
}

// Both kinds.
class Adam : public ListOptimizer {
 public:
  // `decoupled`: the decay is no part of the gradient (AdamW).
  Adam(ParameterList parameters, const AdamOptions& options, bool decoupled)
      : ListOptimizer(std::move(parameters), options), options_(options), decoupled_(decoupled) {
    for (const ParameterClass& alike : list().classes) {
      calls_.push_back({alike, Select(list().tensors, alike), Select(state(0), alike),
                        Select(state(1), alike), Select(state(2), alike)});
    }
  }

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const LeftOut& left_out) override {
    ASSIGN_OR_RETURN(const auto all, Gradients(list(), bucket, left_out.skip, left_out.unused));
    c10::NoGradGuard no_grad;
    for (const auto& [number, chosen, gradients, skip] : all) {
      const FusedCall part = chosen.empty() ? FusedCall() : calls_[number].Of(chosen);
      const FusedCall& call = chosen.empty() ? calls_[number] : part;
      const std::optional<at::Tensor> found_inf = Given(skip);
      Count(call.steps, skip);
      const double rate = learning_rate * call.alike.lr_scale;
      if (decoupled_) {
        at::_fused_adamw_(call.parameters, gradients, call.exp_avgs, call.exp_avg_sqs, {},
                          call.steps, rate, options_.beta1, options_.beta2, call.alike.weight_decay,
                          options_.eps, /*amsgrad=*/false,
                          /*maximize=*/false, /*grad_scale=*/{}, found_inf);
      } else {
        at::_fused_adam_(call.parameters, gradients, call.exp_avgs, call.exp_avg_sqs, {},
                         call.steps, rate, options_.beta1, options_.beta2, call.alike.weight_decay,
                         options_.eps, /*amsgrad=*/false,
                         /*maximize=*/false, /*grad_scale=*/{}, found_inf);
      }
    }
    return absl::OkStatus();
  }

  // One class of parameters, with its state.
  struct FusedCall {
    ParameterClass alike;
    std::vector<at::Tensor> parameters, exp_avgs, exp_avg_sqs, steps;

    FusedCall Of(const std::vector<size_t>& chosen) const {
      return {alike, Chosen(parameters, chosen), Chosen(exp_avgs, chosen),
              Chosen(exp_avg_sqs, chosen), Chosen(steps, chosen)};
    }
  };

  const AdamOptions options_;
  const bool decoupled_;
  std::vector<FusedCall> calls_;  // in the order of the classes
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
