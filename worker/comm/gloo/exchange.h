// The messages of one collective operation: what a rank sends and receives, and the sum in between.
// docs/collectives.md explains the direct exchange.
#ifndef MUSTER_WORKER_COMM_GLOO_EXCHANGE_H_
#define MUSTER_WORKER_COMM_GLOO_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/operation.h"

namespace muster::comm {

struct Exchange {
  uint32_t contribution_tag = 0;
  uint32_t result_tag = 0;
  at::Tensor scratch;  // ScratchBytes() of it; before the transfers, which write to it
  std::vector<std::unique_ptr<Transfer>> contributions;  // to reduce, in rank order, own rank left out
  std::vector<std::unique_ptr<Transfer>> transfers;      // everything else
};

// Memory that a reduction needs for the other ranks' contributions to this rank's slice.
int64_t ScratchBytes(const OperationSpec& spec, int world_size);

// Posts all that can be posted at once. After an error part of it may be posted.
absl::Status PostExchange(const OperationSpec& spec, int world_size, Mesh* mesh,
                          Exchange& exchange);

// Once the contributions are there. Only for all-reduce; nothing to do for the others.
void AddContributions(const OperationSpec& spec, int world_size, const Exchange& exchange);

// Then sends the sum to all.
absl::Status PostReducedSlice(const OperationSpec& spec, int world_size, Mesh* mesh,
                              Exchange& exchange);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_EXCHANGE_H_
