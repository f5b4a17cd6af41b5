// The messages of one collective operation (what a rank sends and receives), and the sum of the
// received contributions. docs/internals/collectives.md explains the direct exchange.
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
  at::Tensor scratch;  // ScratchBytes() bytes; declared before the transfers that write here
  // Contributions of the other ranks to a sum, in rank order.
  std::vector<std::unique_ptr<Transfer>> contributions;
  // All other transfers.
  std::vector<std::unique_ptr<Transfer>> transfers;
  // The address of each rank's contribution to this rank's slice, by rank (sums only). The
  // contributions are there when the transfers are done.
  std::vector<const void*> sources;
  int64_t bytes_sent = 0;
};

// Returns the size of the memory for the other ranks' contributions to a sum: (W - 1) S bytes with
// W ranks and slices of S bytes. A reduce-scatter receives the first contribution in its output, so
// it needs only (W - 2) S bytes. This does not apply if the output is in place or of another type.
int64_t ScratchBytes(const OperationSpec& spec, int world_size);

// Posts all messages that depend on no other message. After an error, some may be posted.
absl::Status PostExchange(const OperationSpec& spec, int world_size, Mesh* mesh,
                          Exchange& exchange);

// Adds the contributions, which must have arrived. Does nothing for operations that are no sums.
void AddContributions(const OperationSpec& spec, int world_size, const Exchange& exchange);

// Sends the sum of an all-reduce to all ranks, after AddContributions. Otherwise does nothing.
absl::Status PostReducedSlice(const OperationSpec& spec, int world_size, Mesh* mesh,
                              Exchange& exchange);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_EXCHANGE_H_
