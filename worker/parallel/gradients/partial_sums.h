// Gathers the sums that each rank has over its own pieces.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_PARTIAL_SUMS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_PARTIAL_SUMS_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace muster::parallel {

// A collective. Returns `mine` of every rank, in rank order: float64 [ranks, N] of float64 [N], on
// the communicator's device. Errors: the communicator's.
absl::StatusOr<at::Tensor> GatherPartialSums(const at::Tensor& mine, int64_t step,
                                             comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_PARTIAL_SUMS_H_
