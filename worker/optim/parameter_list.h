// What the optimizers share: the list of parameters, and their gradients of this step.
#ifndef MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
#define MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"

namespace muster::optim {

struct ParameterList {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;  // the same order
};

// INVALID_ARGUMENT names a parameter that is not dense float32 on the CPU, or that is there twice.
absl::StatusOr<ParameterList> MakeParameterList(std::vector<OptimizedParameter> parameters);

// FAILED_PRECONDITION names a parameter without a gradient, or with one of another shape or type.
absl::StatusOr<std::vector<at::Tensor>> Gradients(const ParameterList& parameters);

// One zero tensor per parameter.
std::vector<at::Tensor> Zeros(const ParameterList& parameters);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
