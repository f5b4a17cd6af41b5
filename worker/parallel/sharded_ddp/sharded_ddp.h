// Sharded data parallelism (ZeRO stage 2; S. Rajbhandari et al., "ZeRO", 2020; fairscale's OSS and
// ShardedDDP): every rank holds all parameters, but of the reduced gradients and the optimizer's
// state only its slice.
//
// Trainable parameters lie in flat buckets (layout/groups.h), each cut into one slice per rank. As
// soon as backward has filled a bucket its gradients are reduce-scattered, and their full-size
// memory is freed; the optimizer updates the slice; the new parameters are all-gathered, in place,
// in the order in which forward wants them, while it already runs: a unit waits for its own
// parameters only. docs/collectives.md draws a step.
//
// Model state of a rank of N, P float32 parameters, AdamW: 4 P (parameters) + 4 P / N (gradients) +
// 8 P / N (moments) bytes, and a few buckets; where gradients are accumulated locally, buckets for
// all of them: 4 P more from the first micro-batch to the last.
//
// The parameters' tensors stay the same objects, but their memory moves into the buckets when the
// strategy is made, and stays there after it is destroyed. A plan after it takes over what already
// lies as it wants it.
#ifndef MUSTER_WORKER_PARALLEL_SHARDED_DDP_SHARDED_DDP_H_
#define MUSTER_WORKER_PARALLEL_SHARDED_DDP_SHARDED_DDP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/sliced_gradients.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct ShardedDdpOptions {
  // As in ddp: equal sizes give equal buckets.
  int64_t bucket_bytes = 4 << 20;
  int64_t first_bucket_bytes = 1 << 20;

  using ReduceEvery = parallel::ReduceEvery;
  ReduceEvery reduce_every = ReduceEvery::kStep;

  // Gradients travel as bfloat16, half the bytes; they are added in float32. Of float32 parameters.
  bool reduce_in_bfloat16 = false;
};

// parameters: in forward order, the same on all ranks; buffers too. Those that need no gradient are
// frozen, and stay whole and untouched on every rank. root: its units are called one by one, and
// read no parameters but their own (unit.h); null: every forward waits for all parameters. kept: of
// the plan before, which is destroyed. Errors: INVALID_ARGUMENT, with the name, when one does not
// fit (model_tensors.h).
absl::StatusOr<std::unique_ptr<Strategy>> CreateShardedDdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, comm::Communicator* communicator, const ShardedDdpOptions& options,
    KeptMemory kept = {});

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SHARDED_DDP_SHARDED_DDP_H_
