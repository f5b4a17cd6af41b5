// What both optimizers do with their parameters: check them, and read their gradients.
#ifndef MUSTER_WORKER_OPTIM_PARAMETERS_H_
#define MUSTER_WORKER_OPTIM_PARAMETERS_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/optim/optimizer.h"

namespace muster::optim {

// INVALID_ARGUMENT naming the first that is not dense float32, contiguous, on the CPU.
absl::Status CheckParameters(const std::vector<OptimizedParameter>& parameters);

// Their gradients, in order. FAILED_PRECONDITION naming the first without one.
absl::StatusOr<std::vector<at::Tensor>> Gradients(const std::vector<OptimizedParameter>& parameters);

// The tensors themselves, to be updated in place: detached, so autograd does not see it.
std::vector<at::Tensor> Detached(const std::vector<OptimizedParameter>& parameters);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_PARAMETERS_H_
