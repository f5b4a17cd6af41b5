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
// of backward. While a unit runs, the next one
// is gathered: in forward the one that came after it in the forward before, in backward the one
// that was called before it. The root's own parameters stay gathered from its forward to the end of
// backward. After the update, the root and the first unit of the next forward are gathered, so that
// they travel while the session works between two steps. Gradients are reduced into slices as in
// sharded_ddp (sliced_gradients.h), with one group for each unit and type; frozen groups are never
// reduced. When the backward of a unit's last call ends, its groups are reduced in their turn, even
// if this rank has no gradient for some of their parameters.
//
// All ranks must call the same units in the same order. Only calls of units may read parameters
// (unit.h). The strategy takes over the model: after the strategy is destroyed, the parameters'
// tensors have their own types again, but no memory, except for those that were gathered at that
// time.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
#define MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/unit.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/gradients/sliced_gradients.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct FsdpOptions {
  std::vector<std::string> units;  // patterns of unit names; empty: the blocks
  // Patterns of parameters' names. These parameters are gathered with the root, once in a step, and
  // are whole from its forward to the end of backward; their gradients are reduced once.
  std::vector<std::string> replicate;
  // False: a unit that is gathered for a forward stays until its backward is done.
  bool reshard_after_forward = true;
  // Frozen parameters, which do not change, stay on every rank after their first gather.
  bool frozen_resident = false;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  bool reduce_in_bfloat16 = false;
  // Units compute with parameters that are rounded to bfloat16. A float32 input of the root is
  // rounded, too, and the root's bfloat16 output is converted to float32. The slices, which are
  // updated and saved, stay float32. Gradients arrive in bfloat16 and are added up in float32. Not
  // for models with float32 buffers.
  bool parameters_in_bfloat16 = false;
  // Returns the elements [begin, end) of a parameter whose tensor may have no memory, as a flat
  // tensor. Called while the strategy is made, for one parameter at a time, only for the elements
  // that this rank holds. If the result is undefined, the values are zero until the caller fills
  // shards()->held. Empty: the tensors have the values.
  std::function<at::Tensor(const at::Tensor& tensor, int64_t begin, int64_t end)> values;
  // Called at each event, if it is set, in the thread that trains. It must not throw.
  std::function<void(const UnitEvent&)> trace;
};

// As CreateShardedDdp, but root must not be null and must outlive the strategy. With `kept`, slices
// whose values are not already in their place are uninitialized until the caller fills
// shards()->held. INVALID_ARGUMENT also for patterns that fit no unit, and for frozen parameters
// that are neither float32, float64 nor int64.
absl::StatusOr<std::unique_ptr<Strategy>> CreateFsdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, const Communicators& communicators, const FsdpOptions& options,
    KeptMemory kept = {});

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
