// What the optimizers share: the list of parameters, and their gradients of this step.
#ifndef MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
#define MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"

namespace muster::optim {

// Parameters that are stepped alike: by one fused call.
struct ParameterClass {
  at::ScalarType type = at::kFloat;
  double weight_decay = 0;
  double lr_scale = 1;
  std::vector<size_t> members;  // indices, rising
};

struct ParameterList {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;  // the same order
  std::vector<std::vector<at::Tensor>>
      states;  // the same order; each empty, or one tensor for each slot
  std::vector<ParameterClass>
      classes;  // each parameter in one; in the order of their first members
};

// `weight_decay`: of the parameters that have none of their own; slots: of the optimizer.
// INVALID_ARGUMENT names a parameter that is not dense float32 or float64 on the CPU, that is there
// twice, whose decay or lr_scale is below 0, or whose state is not as the slots say.
absl::StatusOr<ParameterList> MakeParameterList(std::vector<OptimizedParameter> parameters,
                                                double weight_decay,
                                                const std::vector<StateSlot>& slots);

// FAILED_PRECONDITION names a parameter without a gradient, or with one of another shape or type.
absl::StatusOr<std::vector<at::Tensor>> Gradients(const ParameterList& parameters);

// Those of a class, in its order.
std::vector<at::Tensor> Select(const std::vector<at::Tensor>& tensors,
                               const ParameterClass& members);

// What the optimizer keeps in one slot, for each parameter: what came with it, else zeros, counted
// as moments.
std::vector<at::Tensor> StateOf(const ParameterList& parameters, size_t slot, bool scalar = false);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_PARAMETER_LIST_H_
