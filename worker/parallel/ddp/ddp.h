// Data parallelism: every rank holds the whole model; gradients are summed over ranks in buckets
// while backward still runs (S. Li et al., "PyTorch Distributed", VLDB 2020).
//
// Gradients are accumulated locally over micro-batches and reduced once, in the last. Afterwards
// p.grad() of every trainable parameter is a view into a flat bucket. It is a different tensor in
// every step: read it when needed, do not keep it. Buffers follow the highest rank that is active
// in the step: FinishBackward leaves its own, as they were after its last forward, on every rank
// (buffer_sync.h). So they are equal on all ranks between steps.
#ifndef MUSTER_WORKER_PARALLEL_DDP_DDP_H_
#define MUSTER_WORKER_PARALLEL_DDP_DDP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct DdpOptions {
  // A bucket is closed once it holds so many bytes; the first one (the end of the model) earlier,
  // so that reduction starts early. Small beside PyTorch's 25 MiB: reductions overlap one another,
  // and what is reduced after the end of backward is one bucket.
  int64_t bucket_bytes = 4 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

// parameters: in forward order, the same on all ranks; buffers too. Those that need no gradient are
// frozen. Errors: INVALID_ARGUMENT, with the name, when one does not fit (model_tensors.h).
absl::StatusOr<std::unique_ptr<Strategy>> CreateDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    comm::Communicator* communicator, const DdpOptions& options);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_DDP_DDP_H_
