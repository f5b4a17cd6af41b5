// Stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0):
//   d = g + weight_decay * p;   b = momentum * b + d (b starts at zero);   p -= lr * b
//   nesterov: p -= lr * (d + momentum * b).   Without momentum p -= lr * d, and there is no state.
#include <utility>

#include "ATen/ops/_fused_sgd.h"
#include "c10/core/GradMode.h"
#include "common/status/status.h"
#include "worker/optim/factories.h"
#include "worker/optim/parameter_list.h"

namespace muster::optim {
namespace {

class Sgd : public ListOptimizer {
 public:
  Sgd(ParameterList parameters, const SgdOptions& options)
      : ListOptimizer(std::move(parameters), options), options_(options) {}

 private:
  absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                      const LeftOut& left_out) override {
    ASSIGN_OR_RETURN(const auto all, Gradients(list(), bucket, left_out.skip, left_out.unused));
    c10::NoGradGuard no_grad;
    for (const ClassGradients& of : all) {
      const ParameterClass& alike = list().classes[of.number];
      auto tensors = TensorsOf(of);
      tensors.resize(2);  // without momentum there are no buffers
      // The call does not say "first step": the buffers are zeros at first, and momentum * 0 + d is
      // d.
      at::_fused_sgd_(tensors[0], of.gradients, tensors[1], alike.weight_decay, options_.momentum,
                      learning_rate * alike.lr_scale, /*dampening=*/0.0, options_.nesterov,
                      /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/{},
                      Given(of.skip));
    }
    return absl::OkStatus();
  }

  const SgdOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> CreateSgd(std::vector<OptimizedParameter> parameters,
                                                     const SgdOptions& options) {
  ASSIGN_OR_RETURN(ParameterList list, MakeParameterList(std::move(parameters), options));
  return std::make_unique<Sgd>(std::move(list), options);
}

}  // namespace muster::optim
