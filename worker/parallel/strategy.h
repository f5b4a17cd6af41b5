// How the ranks share one model: what the step loop and the session need of it. ddp, sharded_ddp,
// fsdp.
//
// A step:
//   strategy->BeginStep({step, divisor, buffers_from});
//   for each micro-batch m: strategy->BeginMicroBatch(m is the last); forward; backward;
//   strategy->FinishBackward();            // the gradients of pieces() are the reduced ones
//   scale, clip and step the optimizer over pieces()
//   strategy->FinishUpdate();              // not for a step that is left out: RestoreBuffers then
// The reduced gradient is (rank-ordered sum over ranks of the sums over micro-batches) / divisor. A
// parameter that no micro-batch used has a zero gradient. Forwards run in a context of MakeContext.
//
// All ranks have the same number of micro-batches in a step. One that has nothing to bring to one
// of them, nor to those after it in this step, has joined (S. Li et al., PyTorch's Join): it calls
// BeginJoinedMicroBatch in place of BeginMicroBatch, and its gradient there is zero. It steps the
// optimizer as all others do, so that parameters and state stay equal.
//
// Life cycle: one per generation and plan. It owns the post-accumulate-gradient hook of every
// trainable parameter (autograd has one per tensor) until it is destroyed, and waits for what is in
// flight then. The communicator must outlive it and is used for nothing else. Threading: one
// thread, the one that calls backward (for CPU tensors, hooks run in it). Errors: those of the
// communicator; after one, rebuild. A forward, and with fsdp a backward, throws
// models::ContextError where parameters did not arrive; nothing else is thrown through autograd.
#ifndef MUSTER_WORKER_PARALLEL_STRATEGY_H_
#define MUSTER_WORKER_PARALLEL_STRATEGY_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "worker/layout/placement.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// What this rank updates of a parameter: elements [begin, begin + tensor.numel()) of it, flattened.
struct Piece {
  size_t parameter = 0;  // index in the list that the strategy was made of
  int64_t begin = 0;
  // Shares the parameter's memory; its grad() is the reduced gradient after FinishBackward, until
  // the next BeginStep.
  at::Tensor tensor;
};

// All parameters, frozen ones too, where no rank holds all of them.
struct ParameterShards {
  // Of the pieces, by parameter.
  std::vector<at::ScalarType> types;
  // What this rank holds between steps. Their grad() means nothing.
  std::vector<Piece> held;
  // What each rank holds, the same on all ranks: each element has one holder. Offsets mean nothing.
  layout::Placement holders;
};

// What a plan leaves for the one after it: a group whose members are to lie as they do stays where
// it is (in_place.h).
struct KeptMemory {
  // Made by this plan or an earlier one, each all of its storage. Nothing but parameters lies
  // there.
  std::vector<at::Tensor> flats;
  // Where there are shards: what this rank holds in them.
  std::vector<Piece> held;
};

// Which rank holds what under a plan.
struct Placements {
  // As Strategy::owners.
  layout::Placement owners;
  // As ParameterShards::holders; where every rank has all parameters, none.
  std::optional<layout::Placement> holders;
};

// What all ranks say alike at the start of a step.
struct StepStart {
  int64_t step = 0;
  // Above 0; here because gradients are divided while backward still runs.
  double divisor = 1;
  // The rank whose buffers all go on with, one with input: the highest. -1: the last one.
  int buffers_from = -1;
};

// Sums over elements in two doubles (optim/clip.h).
using PartialSum = std::array<double, 2>;

class Strategy {
 public:
  virtual ~Strategy() = default;

  // Of the trainable parameters, at most one each. ddp: each parameter whole, on every rank.
  // Sharded: each element is in the pieces of exactly one rank; pieces begin at multiples of 16
  // elements, and one of an empty parameter is rank 0's.
  virtual const std::vector<Piece>& pieces() const = 0;

  // Whether each element of the trainable parameters is in the pieces of one rank only.
  virtual bool sharded() const = 0;

  // The pieces of all ranks, over the list of parameters that the strategy was made of; frozen ones
  // are nobody's. Offsets mean nothing.
  virtual layout::Placement owners() const = 0;

  // The placements of a plan of this strategy that trains the parameters that are `trained`, by
  // index. Pure: nothing changes.
  virtual Placements PlacementsFor(const std::vector<bool>& trained) const = 0;

  // Null where every rank has all parameters: ddp, sharded_ddp. Else there is no memory behind a
  // parameter's tensor but in forwards of units that it belongs to, in a context of MakeContext,
  // and between GatherParameters and ReleaseParameters.
  virtual const ParameterShards* shards() const { return nullptr; }

  // The context for forwards of the model. The strategy must outlive it.
  virtual std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                              at::Generator generator) = 0;

  // Drops the last step's gradients.
  virtual void BeginStep(const StepStart& start) = 0;

  // Before each forward of a step.
  virtual void BeginMicroBatch(bool last) = 0;

  // In its place, where this rank has nothing to bring. Where the context is collective a forward
  // and backward of any batch follow, whose gradients are dropped; else nothing does.
  virtual void BeginJoinedMicroBatch(bool last) = 0;

  // After the last backward: reduces what backward did not reach, and waits for gradients and
  // buffers.
  virtual absl::Status FinishBackward() = 0;

  // What every rank says of its own pieces, in rank order. A collective, except where each rank has
  // all pieces: only `mine` then.
  virtual absl::StatusOr<std::vector<PartialSum>> GatherSums(const PartialSum& mine) = 0;

  // After the update of pieces(): begins to bring the new values to all ranks. Forwards in a
  // context of MakeContext wait for what they need; whoever else reads parameters (of shards(),
  // where there are any), or any buffer of memory behind them, calls AwaitParameters before.
  virtual void FinishUpdate() = 0;
  virtual absl::Status AwaitParameters() = 0;

  // For whoever reads parameters outside of forwards: those of these indices are there until the
  // next call of anything but pieces(). Between steps; a collective where there are shards.
  virtual absl::Status GatherParameters(const std::vector<size_t>& parameters) {
    return AwaitParameters();
  }
  // Ends that. What was written into them in between, the same on all ranks, is kept.
  virtual void ReleaseParameters() {}

  // For a step that is left out: puts the buffers back to what they were at BeginStep. After
  // FinishBackward.
  virtual void RestoreBuffers() = 0;

  // Compares a hash of all parameters and buffers over ranks, bitwise. A collective. DATA_LOSS
  // names the ranks that differ and the first parameter or buffer in which they do.
  virtual absl::Status VerifyParametersEqual(int64_t step) = 0;

  // Hash of what lies where: the trainable parameters, buckets, slices. Ranks whose hashes differ
  // must not communicate.
  virtual uint64_t layout_fingerprint() const = 0;

  // Before another plan of the same strategy is made of the same model, which is given what this
  // returns. The values stay where they are: behind the parameters' tensors, or in the shards,
  // which outlive the strategy where somebody keeps them. Only the destructor may be called then.
  virtual KeptMemory ReleaseModel() { return {}; }

  // For reports and tests.
  virtual int64_t bucket_count() const = 0;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_STRATEGY_H_
