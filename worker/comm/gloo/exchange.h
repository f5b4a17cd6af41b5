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
  std::vector<std::unique_ptr<Transfer>>
      contributions;                                 // to reduce, in rank order, own rank left out
  std::vector<std::unique_ptr<Transfer>> transfers;  // everything else
  // A sum's contributions to this rank's slice, by rank: where they are once the transfers are
  // done.
  std::vector<const void*> sources;
  int64_t bytes_sent = 0;
};

// Memory that a sum of S bytes of slice on each of W ranks needs for the other ranks'
// contributions: (W - 1) S. A reduce-scatter takes the first of them in its output, which leaves (W
// - 2) S (nothing for two ranks), unless the output is in place or of another type.
int64_t ScratchBytes(const OperationSpec& spec, int world_size);

// Posts all that can be posted at once. After an error part of it may be posted.
absl::Status PostExchange(const OperationSpec& spec, int world_size, Mesh* mesh,
                          Exchange& exchange);

// Once the contributions are there. Nothing to do for operations that are no sums.
void AddContributions(const OperationSpec& spec, int world_size, const Exchange& exchange);

// Then sends the sum to all, if this is an all-reduce.
absl::Status PostReducedSlice(const OperationSpec& spec, int world_size, Mesh* mesh,
                              Exchange& exchange);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_EXCHANGE_H_
