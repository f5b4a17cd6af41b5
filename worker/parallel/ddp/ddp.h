// Data parallelism: every rank holds the whole model. Gradients are summed over ranks in buckets
// while backward still runs (S. Li et al., "PyTorch Distributed", VLDB 2020).
//
// Gradients are accumulated locally over micro-batches and reduced once, in the last micro-batch.
// Afterwards p.grad() of every trainable parameter is a view of a flat bucket. p.grad() is a
// different tensor in every step, so callers must not keep the tensor.
// All ranks take over the buffers of the highest rank with input in the step, as they were after
// that rank's last forward (buffer_sync.h). So buffers are equal on all ranks after FinishBackward.
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
  // The bytes after which a bucket is closed. The first bucket, with the end of the model, is
  // smaller, so that reduction starts early. The sizes are small beside PyTorch's 25 MiB, because
  // reductions overlap one another, and the last bucket is reduced after the end of backward.
  int64_t bucket_bytes = 4 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

// parameters, buffers: in forward order, the same on all ranks. Parameters that do not require a
// gradient are frozen. Errors: INVALID_ARGUMENT, with the name, if a parameter or buffer does not
// fit (model_tensors.h).
absl::StatusOr<std::unique_ptr<Strategy>> CreateDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    comm::Communicator* communicator, const DdpOptions& options);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_DDP_DDP_H_
