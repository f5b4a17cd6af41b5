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

std::vector<StateSlot> AdamSlots() {
  return {{"exp_avg"}, {"exp_avg_sq"}, {"step", /*scalar=*/true}};
}

// Adds 1 to each number of steps, and 0 if `skip` is 1.
void Count(const std::vector<at::Tensor>& steps, const at::Tensor& skip) {
  if (skip.defined()) return at::_foreach_add_(steps, skip.neg().add(1));
  if (!steps.front().is_cpu()) return at::_foreach_add_(steps, 1);
  // Without the cost of a dispatch, because models have hundreds of small parameters.
  for (const at::Tensor& step : steps) device::MutableHostValues<float>(step)[0] += 1.0f;
}

// Both kinds.
class Adam : public Optimizer {
 public:
  // `decoupled`: the decay is no part of the gradient (AdamW).
  Adam(ParameterList parameters, const AdamOptions& options, bool decoupled)
      : options_(options),
        decoupled_(decoupled),
        parameters_(std::move(parameters)),
        exp_avgs_(StateOf(parameters_, 0)),
        exp_avg_sqs_(StateOf(parameters_, 1)),
        steps_(StateOf(parameters_, 2, /*scalar=*/true)) {
    for (const ParameterClass& alike : parameters_.classes) {
      calls_.push_back({alike, Select(parameters_.tensors, alike), Select(exp_avgs_, alike),
                        Select(exp_avg_sqs_, alike), Select(steps_, alike)});
    }
  }

  std::vector<StateSlot> Slots() const override { return AdamSlots(); }

  std::vector<NamedTensor> State() override {
    std::vector<NamedTensor> state;
    for (size_t i = 0; i < parameters_.names.size(); ++i) {
      state.push_back({parameters_.names[i], "exp_avg", exp_avgs_[i]});
      state.push_back({parameters_.names[i], "exp_avg_sq", exp_avg_sqs_[i]});
      state.push_back({parameters_.names[i], "step", steps_[i]});
    }
    return state;
  }

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const at::Tensor& skip) override {
    ASSIGN_OR_RETURN(const auto all, Gradients(parameters_, bucket));
    c10::NoGradGuard no_grad;
    const std::optional<at::Tensor> found_inf = Given(skip);
    for (const auto& [number, gradients] : all) {
      const FusedCall& call = calls_[number];
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
  };

  const AdamOptions options_;
  const bool decoupled_;
  const ParameterList parameters_;
  const std::vector<at::Tensor> exp_avgs_;
  const std::vector<at::Tensor> exp_avg_sqs_;
  const std::vector<at::Tensor> steps_;
  std::vector<FusedCall> calls_;  // in the order of the classes
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdam(std::vector<OptimizedParameter> parameters,
                                                      const AdamOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list,
                   MakeParameterList(std::move(parameters), options.weight_decay, AdamSlots()));
  return std::make_unique<Adam>(std::move(list), options, /*decoupled=*/false);
}

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(std::vector<OptimizedParameter> parameters,
                                                       const AdamWOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list,
                   MakeParameterList(std::move(parameters), options.weight_decay, AdamSlots()));
  const AdamOptions same = {options.beta1, options.beta2, options.eps, options.weight_decay};
  return std::make_unique<Adam>(std::move(list), same, /*decoupled=*/true);
}

}  // namespace muster::optim
