#include "worker/optim/sgd.h"

#include <utility>

#include "ATen/ops/_fused_sgd.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/optim/parameter_list.h"

namespace muster::optim {
namespace {

class Sgd : public ListOptimizer {
 public:
  Sgd(ParameterList parameters, const SgdOptions& options)
      : ListOptimizer(std::move(parameters), options), options_(options) {
    for (const ParameterClass& alike : list().classes) {
      calls_.push_back({alike, Select(list().tensors, alike), {}});
      if (options_.momentum != 0) calls_.back().buffers = Select(state(0), alike);
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
      // Not "first step": the buffers are zeros then, and momentum * 0 + d is d.
      at::_fused_sgd_(call.parameters, gradients, call.buffers, call.alike.weight_decay,
                      options_.momentum, learning_rate * call.alike.lr_scale, /*dampening=*/0.0,
                      options_.nesterov, /*maximize=*/false, /*is_first_step=*/false,
                      /*grad_scale=*/{}, Given(skip));
    }
    return absl::OkStatus();
  }

  // One class of parameters, with its state.
  struct FusedCall {
    ParameterClass alike;
    std::vector<at::Tensor> parameters, buffers;

    FusedCall Of(const std::vector<size_t>& chosen) const {
      return {alike, Chosen(parameters, chosen), Chosen(buffers, chosen)};
    }
  };

  const SgdOptions options_;
  std::vector<FusedCall> calls_;  // in the order of the classes
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters), options));
  return std::make_unique<Sgd>(std::move(list), options);
}

}  // namespace muster::optim
