// The messages of one collective operation: what a rank sends and receives, and the sum of what it
// received. docs/internals/collectives.md explains the direct exchange.
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
  at::Tensor scratch;  // ScratchBytes() bytes; declared before the transfers, which write to it
  // Of the other ranks, in rank order: what is to be reduced.
  std::vector<std::unique_ptr<Transfer>> contributions;
  // Everything else.
  std::vector<std::unique_ptr<Transfer>> transfers;
  // Of a sum, by rank: where the contributions to this rank's slice are once the transfers are
  // done.
  std::vector<const void*> sources;
  int64_t bytes_sent = 0;
};

// The memory that a sum needs for the contributions of the other ranks: with W ranks and slices of
// S bytes (W - 1) S bytes. A reduce-scatter needs only (W - 2) S bytes, nothing for two ranks,
// because it takes the first contribution in its output; but not if the output is in place or of
// another type.
int64_t ScratchBytes(const OperationSpec& spec, int world_size);

// Posts all messages that depend on no other message. After an error some of them may be posted.
absl::Status PostExchange(const OperationSpec& spec, int world_size, Mesh* mesh,
                          Exchange& exchange);

// Call it once the contributions have arrived. Does nothing for operations that are not sums.
void AddContributions(const OperationSpec& spec, int world_size, const Exchange& exchange);

// Call it after AddContributions. An all-reduce then sends the sum to all ranks.
absl::Status PostReducedSlice(const OperationSpec& spec, int world_size, Mesh* mesh,
                              Exchange& exchange);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_EXCHANGE_H_
