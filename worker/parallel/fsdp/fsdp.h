// Fully sharded data parallelism (ZeRO stage 3; S. Rajbhandari et al., "ZeRO", 2020; fairscale's
// FullyShardedDataParallel, with its resharding of frozen parameters in backward; PyTorch's FSDP):
// of parameters, gradients and optimizer state a rank holds its slices. A unit's full parameters
// exist only around its forward and around its backward.
//
// Per unit (unit_plan.h) parameters lie in flat groups, the trainable ones and the frozen ones
// apart (flat_group.h). A call of a unit gathers it before and frees it after. Where its output
// needs a gradient, it is gathered again right before its backward, and freed as soon as the
// gradient of its input is complete: also a unit that is frozen. Without a gradient of the input,
// the end of backward frees it. While a unit runs, the next one is gathered: in forward the one
// that came after it last time, in backward the one before it. The root's own parameters stay from
// its forward to the end of backward, those of an evaluation to the next step. Gradients are
// reduced into slices as in sharded_ddp (sliced_gradients.h), with one group for each unit; frozen
// ones never.
//
// All ranks call the same units in the same order. Nothing outside of calls of units reads
// parameters (unit.h). Once made, the model is this strategy's: after it is destroyed there is no
// memory behind its parameters' tensors, but for those that were gathered then; they are of their
// own types again.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
#define MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/sliced_gradients.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// What happens to the full parameters of a unit.
struct UnitEvent {
  enum class Kind {
    kGather,          // begins
    kFree,            // gone
    kForward,         // runs now
    kBeforeBackward,  // its backward begins: it is there
    kAfterBackward,   // the gradient of its input is complete
  };
  std::string unit;  // its name; "" is the root
  Kind kind = Kind::kGather;
  int64_t whole_bytes = 0;  // of all units, after it
  friend bool operator==(const UnitEvent&, const UnitEvent&) = default;
};

struct FsdpOptions {
  std::vector<std::string> units;  // patterns; empty: the blocks
  // False: what is gathered for a forward stays until its backward is done.
  bool reshard_after_forward = true;
  // Frozen parameters stay on every rank once they are gathered: they do not change.
  bool frozen_resident = false;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  bool reduce_in_bfloat16 = false;
  // Units compute with parameters rounded to bfloat16, and what comes into the root as float32 is
  // rounded too; what it gives is float32 again. The slices, which are updated and saved, stay
  // float32. Gradients arrive in bfloat16 and are added up in float32. Not for models with float32
  // buffers.
  bool parameters_in_bfloat16 = false;
  // The values of a parameter whose tensor may have no memory; one is asked for at a time, while
  // the strategy is made. Undefined ones: zeros, until somebody fills what shards()->held has.
  // Empty: the tensors have them.
  std::function<at::Tensor(const at::Tensor& tensor)> values;
  // Called at each event, where it is set, in the thread that trains: must not throw.
  std::function<void(const UnitEvent&)> trace;
};

// As CreateShardedDdp; root is not null and outlives the strategy. With `kept`, the slices that do
// not lie there already hold anything, until somebody fills what shards()->held has.
// INVALID_ARGUMENT also for patterns that fit no unit, and for frozen parameters that are neither
// float32, float64 nor int64.
absl::StatusOr<std::unique_ptr<Strategy>> CreateFsdp(
    const std::vector<models::Parameter>& parameters, const std::vector<models::Buffer>& buffers,
    const models::Unit* root, comm::Communicator* communicator, const FsdpOptions& options,
    KeptMemory kept = {});

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_FSDP_H_
