#include "worker/optim/adamw.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/optim/parameters.h"

namespace muster::optim {
namespace {

class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimizedParameter> parameters, const AdamWOptions& options)
      : parameters_(std::move(parameters)), options_(options), tensors_(Detached(parameters_)) {
    for (const at::Tensor& tensor : tensors_) {
      exp_avgs_.push_back(at::zeros_like(tensor));
      exp_avg_sqs_.push_back(at::zeros_like(tensor));
      steps_.push_back(at::zeros({}, at::kFloat));
    }
  }

  absl::Status Step(double learning_rate) override {
    ASSIGN_OR_RETURN(std::vector<at::Tensor> gradients, Gradients(parameters_));
    for (at::Tensor& step : steps_) *step.data_ptr<float>() += 1;
    at::_fused_adamw_(tensors_, gradients, exp_avgs_, exp_avg_sqs_, /*max_exp_avg_sqs=*/{}, steps_,
                      learning_rate, options_.beta1, options_.beta2, options_.weight_decay,
                      options_.eps, /*amsgrad=*/false, /*maximize=*/false);
    return absl::OkStatus();
  }

  std::vector<NamedTensor> State() override {
    std::vector<NamedTensor> state;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      state.push_back({parameters_[i].name, "exp_avg", exp_avgs_[i]});
      state.push_back({parameters_[i].name, "exp_avg_sq", exp_avg_sqs_[i]});
      state.push_back({parameters_[i].name, "step", steps_[i]});
    }
    return state;
  }

 private:
  const std::vector<OptimizedParameter> parameters_;
  const AdamWOptions options_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> exp_avgs_;
  std::vector<at::Tensor> exp_avg_sqs_;
  std::vector<at::Tensor> steps_;  // float32 scalars
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateAdamW(std::vector<OptimizedParameter> parameters,
                                                       const AdamWOptions& options) {
  RETURN_IF_ERROR(CheckParameters(parameters));
  for (const auto& [name, beta] : {std::pair("beta1", options.beta1), {"beta2", options.beta2}}) {
    if (!(beta >= 0 && beta < 1)) {
      return absl::InvalidArgumentError(absl::StrCat("adamw ", name, ": found ", beta, ", allowed: [0, 1)"));
    }
  }
  if (!(options.eps >= 0) || !(options.weight_decay >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("adamw: eps ", options.eps, " and weight_decay ",
                                                   options.weight_decay, " must not be negative"));
  }
  return std::make_unique<AdamW>(std::move(parameters), options);
}

}  // namespace muster::optim
