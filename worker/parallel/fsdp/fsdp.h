// Fully sharded data parallelism (ZeRO stage 3; S. Rajbhandari et al., "ZeRO", 2020; fairscale's
// FullyShardedDataParallel, with its resharding of frozen parameters in backward; PyTorch's FSDP).
// A rank holds only its slices of parameters, gradients and optimizer state. The full parameters of
// a unit exist only around the unit's forward and backward.
//
// The parameters of each unit (unit_plan.h) lie in flat groups (flat_group.h). Trainable and frozen
// parameters have separate groups. When units are gathered and freed:
// - Forward: a unit is gathered before its call and freed after the call. Meanwhile the unit that
//   came next in the forward before is gathered.
// - Backward: a unit whose outputs require a gradient is gathered again before its backward begins
//   at any of them. The unit is freed when all gradients of its inputs are complete, or at the end
//   of backward if no input requires a gradient. Meanwhile the unit that was called before is
//   gathered. Frozen units are no exception.
// - The root's own parameters stay gathered from the root's forward to the end of backward.
// - After the update, the root and the first unit of the next forward are gathered, while the
//   session works between two steps.
//
// Gradients are reduced into slices as in sharded_ddp (sliced_gradients.h), with one group for each
// unit and type; frozen groups are never reduced. When the backward of a unit's last call ends, its
// groups are reduced in their turn, also if this rank lacks some gradients.
//
// All ranks must call the same units in the same order. Only calls of units may read parameters
// (unit.h). The strategy takes over the model. After the strategy is destroyed, the parameters'
// tensors have their own types again. They have memory only if they were gathered at that time and
// not rounded to bfloat16.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
#define MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/unit.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/fsdp/fsdp_options.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// See CreateShardedDdp, but root must not be null and must outlive the strategy. With `kept`,
// slices whose values are not in their place yet are uninitialized until the caller fills
// ParameterShards::held. INVALID_ARGUMENT also for patterns that fit no unit, and for frozen
// parameters of other types than float32, float64 and int64.
absl::StatusOr<std::unique_ptr<Strategy>> CreateFsdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, const Communicators& communicators, const FsdpOptions& options,
    KeptMemory kept = {});

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
