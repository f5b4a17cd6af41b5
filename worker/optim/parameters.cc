#include "worker/optim/parameters.h"

#include <ATen/core/Tensor.h>

#include "absl/strings/str_cat.h"

namespace muster::optim {

absl::Status CheckParameters(const std::vector<OptimizedParameter>& parameters) {
  for (const OptimizedParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    if (!tensor.defined() || tensor.scalar_type() != at::kFloat || !tensor.device().is_cpu() ||
        !tensor.is_contiguous()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name,
                       "': an optimizer takes dense, contiguous float32 on the CPU"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<at::Tensor>> Gradients(
    const std::vector<OptimizedParameter>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const OptimizedParameter& parameter : parameters) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined()) {
      return absl::FailedPreconditionError(
          absl::StrCat("parameter '", parameter.name, "' has no gradient to step with"));
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

std::vector<at::Tensor> Detached(const std::vector<OptimizedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(parameters.size());
  for (const OptimizedParameter& parameter : parameters) {
    tensors.push_back(parameter.tensor.detach());
  }
  return tensors;
}

}  // namespace muster::optim
