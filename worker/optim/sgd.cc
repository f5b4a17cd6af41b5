#include "worker/optim/sgd.h"

#include <utility>

#include "ATen/ops/_fused_sgd.h"
#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/optim/parameter_list.h"

namespace muster::optim {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(ParameterList parameters, const SgdOptions& options)
      : options_(options), parameters_(std::move(parameters)) {
    if (options_.momentum != 0) buffers_ = Zeros(parameters_);
  }

  absl::Status Step(double learning_rate) override {
    ASSIGN_OR_RETURN(const std::vector<at::Tensor> gradients, Gradients(parameters_));
    if (gradients.empty()) return absl::OkStatus();
    c10::NoGradGuard no_grad;
    // Not "first step": the buffers are zeros then, and momentum * 0 + d is d.
    at::_fused_sgd_(parameters_.tensors, gradients, buffers_, options_.weight_decay,
                    options_.momentum, learning_rate, /*dampening=*/0.0, options_.nesterov,
                    /*maximize=*/false, /*is_first_step=*/false);
    return absl::OkStatus();
  }

  std::vector<NamedTensor> State() override {
    std::vector<NamedTensor> state;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      state.push_back({parameters_.names[i], "momentum_buffer", buffers_[i]});
    }
    return state;
  }

 private:
  const SgdOptions options_;
  const ParameterList parameters_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options) {
  if (!(options.momentum >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sgd: momentum is ", options.momentum, ", allowed is >= 0"));
  }
  if (!(options.weight_decay >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("sgd: weight_decay is ", options.weight_decay, ", allowed is >= 0"));
  }
  if (options.nesterov && options.momentum == 0) {
    return absl::InvalidArgumentError("sgd: nesterov needs momentum");
  }
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters)));
  return std::make_unique<Sgd>(std::move(list), options);
}

}  // namespace muster::optim
