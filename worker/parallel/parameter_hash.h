// Checks whether all ranks hold the same tensors, bit by bit.
#ifndef MUSTER_WORKER_PARALLEL_PARAMETER_HASH_H_
#define MUSTER_WORKER_PARALLEL_PARAMETER_HASH_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// A collective: every rank calls it with the same names (such as "parameter 'w'") in the same
// order. If bits differ, it returns DATA_LOSS on every rank, with the name of the first tensor that
// differs and the ranks whose bits differ from those of rank 0.
absl::Status CheckEqualOnAllRanks(const std::vector<std::string>& names,
                                  const std::vector<at::Tensor>& tensors, int64_t step,
                                  comm::Communicator* communicator);

// The same for a model's parameters and buffers.
absl::Status CheckModelEqualOnAllRanks(const std::vector<models::Parameter>& parameters,
                                       const std::vector<models::Buffer>& buffers, int64_t step,
                                       comm::Communicator* communicator);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_PARAMETER_HASH_H_
