// Sharded data parallelism (ZeRO stage 2; S. Rajbhandari et al., "ZeRO", 2020; fairscale's OSS and
// ShardedDDP). Every rank holds all parameters, but only its slice of the reduced gradients and of
// the optimizer's state.
//
// Trainable parameters lie in flat buckets (layout/groups.h); each bucket is cut into one slice per
// rank. When backward has filled a bucket with gradients, the bucket is reduce-scattered, and the
// memory of the full bucket is freed. The optimizer updates the rank's slices of the parameters.
// Then the new parameters are all-gathered in place, in the order in which forward needs them. A
// unit waits for its own parameters only. docs/internals/collectives.md has a drawing of a step.
//
// Bytes of memory on one of N ranks, for a model with P float32 parameters and AdamW: 4 P
// (parameters) + 4 P / N (gradients) + 8 P / N (moments), and a few buckets. If gradients are
// accumulated locally, there are buckets for all gradients, 4 P bytes more, from the first
// micro-batch to the last.
//
// The parameters' tensors stay the same objects. Their memory is moved into the buckets when the
// strategy is made, and stays there after the strategy is destroyed. Only a parameter without
// elements keeps its own memory. The next plan takes over the buckets that already have the right
// layout.
#ifndef MUSTER_WORKER_PARALLEL_SHARDED_DDP_SHARDED_DDP_H_
#define MUSTER_WORKER_PARALLEL_SHARDED_DDP_SHARDED_DDP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/gradients/sliced_gradients.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct ShardedDdpOptions {
  // See DdpOptions; with the same sizes both strategies have the same buckets.
  int64_t bucket_bytes = 4 << 20;
  int64_t first_bucket_bytes = 1 << 20;

  using ReduceEvery = parallel::ReduceEvery;
  ReduceEvery reduce_every = ReduceEvery::kStep;

  // Sends gradients of float32 parameters as bfloat16, which halves the bytes. The sums are
  // float32.
  bool reduce_in_bfloat16 = false;
};

// parameters, buffers: in forward order, the same on all ranks. Parameters that do not require a
// gradient are frozen: every rank holds them whole, and they do not change.
// root: units are called one by one, and read only their own parameters (unit.h). Null: every
// forward waits for all parameters.
// kept: the result of ReleaseModel of the plan before, which has been destroyed.
// Errors: INVALID_ARGUMENT, with the name, if a parameter or buffer does not fit (model_tensors.h).
absl::StatusOr<std::unique_ptr<Strategy>> CreateShardedDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, comm::Communicator* communicator, const ShardedDdpOptions& options,
    KeptMemory kept = {});

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SHARDED_DDP_SHARDED_DDP_H_
