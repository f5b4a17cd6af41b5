// Fully sharded data parallelism (ZeRO stage 3; S. Rajbhandari et al., "ZeRO", 2020; fairscale's
// FullyShardedDataParallel, with its resharding of frozen parameters in backward; PyTorch's FSDP):
// a rank holds only its slices of parameters, gradients and optimizer state. A unit's full
// parameters exist only around its forward and around its backward.
//
// The parameters of each unit (unit_plan.h) lie in flat groups, trainable and frozen parameters in
// separate ones (flat_group.h). A unit is gathered before its call and freed after it. If its
// outputs require a gradient, the unit is gathered again right before its backward enters through
// any of them, and freed as soon as the gradients of all its inputs that require one are complete.
// This holds for frozen units, too. If no input requires a gradient, the unit is freed at the end
// of backward. While a unit runs, the next one is gathered: in forward the one that came after it
// in the forward before, in backward the one that was called before it. The root's own parameters
// stay gathered from its forward to the end of backward. After the update, the root and the first
// unit of the next forward are gathered, so that they travel while the session works between two
// steps. Gradients are reduced into slices as in sharded_ddp (sliced_gradients.h), with one group
// for each unit and type; frozen groups are never reduced. When the backward of a unit's last call
// ends, its groups are reduced in their turn, even if this rank has no gradient for some of their
// parameters.
//
// All ranks must call the same units in the same order. Only calls of units may read parameters
// (unit.h). The strategy takes over the model: after the strategy is destroyed, the parameters'
// tensors have their own types again, but no memory, except for those that were gathered at that
// time.
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

// As CreateShardedDdp, but root must not be null and must outlive the strategy. With `kept`, slices
// whose values are not already in their place are uninitialized until the caller fills
// ParameterShards::held. INVALID_ARGUMENT also for patterns that fit no unit, and for frozen
// parameters that are neither float32, float64 nor int64.
absl::StatusOr<std::unique_ptr<Strategy>> CreateFsdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, const Communicators& communicators, const FsdpOptions& options,
    KeptMemory kept = {});

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
