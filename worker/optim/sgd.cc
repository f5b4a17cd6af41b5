#include "worker/optim/sgd.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/optim/parameters.h"

namespace muster::optim {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(std::vector<OptimizedParameter> parameters, const SgdOptions& options)
      : parameters_(std::move(parameters)), options_(options), tensors_(Detached(parameters_)) {
    if (options_.momentum == 0) return;
    for (const at::Tensor& tensor : tensors_) momenta_.push_back(at::zeros_like(tensor));
  }

  absl::Status Step(double learning_rate) override {
    ASSIGN_OR_RETURN(std::vector<at::Tensor> gradients, Gradients(parameters_));
    // Buffers that start at zero need no first step of their own: momentum * 0 + d = d.
    at::_fused_sgd_(tensors_, gradients, momenta_, options_.weight_decay, options_.momentum,
                    learning_rate, /*dampening=*/0.0, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false);
    return absl::OkStatus();
  }

  std::vector<NamedTensor> State() override {
    std::vector<NamedTensor> state;
    for (size_t i = 0; i < momenta_.size(); ++i) {
      state.push_back({parameters_[i].name, "momentum_buffer", momenta_[i]});
    }
    return state;
  }

 private:
  const std::vector<OptimizedParameter> parameters_;
  const SgdOptions options_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> momenta_;  // empty without momentum
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options) {
  RETURN_IF_ERROR(CheckParameters(parameters));
  if (!(options.momentum >= 0) || !(options.weight_decay >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("sgd: momentum ", options.momentum,
                                                   " and weight_decay ", options.weight_decay,
                                                   " must not be negative"));
  }
  if (options.nesterov && options.momentum == 0) {
    return absl::InvalidArgumentError("sgd: nesterov needs momentum above 0");
  }
  return std::make_unique<Sgd>(std::move(parameters), options);
}

}  // namespace muster::optim
