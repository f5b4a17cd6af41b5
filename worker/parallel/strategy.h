// How the ranks train one model together: the step protocol of ddp, sharded_ddp and fsdp. Where the
// parameters lie between steps is the subject of parameter_store.h.
//
// A step:
//   strategy->BeginStep({step, divisor, buffers_from});
//   for each micro-batch m: strategy->BeginMicroBatch(m is the last); forward; backward;
//   strategy->FinishBackward();            // the gradients of pieces() are the reduced ones
//   scale, clip and step the optimizer over pieces(), except those that are unused(); or
//   FinishBackward steps bucket by bucket
//   strategy->FinishUpdate();              // if the step is left out: RestoreBuffers() instead
// Where only the device knows whether a step is left out: RestoreBuffersIf, then FinishUpdate.
//
// The reduced gradient is the sum over ranks, in rank order, of each rank's sum over micro-batches,
// divided by `divisor`. A rank that did not use a parameter adds zero. unused() says which
// parameters no rank used: the step must leave them as they are, with their state, as PyTorch's
// DistributedDataParallel with find_unused_parameters does. Their gradients are zero. Forwards run
// in a context of MakeContext.
//
// All ranks have the same number of micro-batches in a step. A rank that has no input for one of
// them, nor for the later ones of this step, has joined (S. Li et al., PyTorch's Join): it calls
// BeginJoinedMicroBatch instead of BeginMicroBatch, and its gradient there is zero. It steps the
// optimizer as all other ranks do, so that parameters and state stay equal.
//
// Life cycle: one per generation and plan. It owns the post-accumulate-gradient hook of every
// trainable parameter (autograd has one per tensor) until it is destroyed; its destructor waits for
// the operations in flight. Its communicators must outlive it and are used for nothing else.
// Devices: the communicators' device. Buffers are there before the strategy is made, and so are
// parameters; with fsdp, which copies this rank's slices there, parameters may be on the CPU until
// then. Pieces and gradients are there, too. On a device other than the CPU, work is ordered in the
// current stream, and the host waits only where a communicator's Wait does.
// Threading: one thread, the one that calls backward. Hooks run in it for tensors on the CPU, and
// in autograd's thread of the device otherwise, while the caller waits in backward.
// Errors: those of the communicator; after one, make a new communicator and a new strategy. A
// forward, and with fsdp a backward, throws models::ContextError if parameters did not arrive;
// nothing else is thrown through autograd.
#ifndef MUSTER_WORKER_PARALLEL_STRATEGY_H_
#define MUSTER_WORKER_PARALLEL_STRATEGY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/layout/placement.h"
#include "worker/models/unit.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {

// The memory that a plan leaves for the next one. A group of the next plan stays where it is if its
// members already lie there as it wants them (in_place.h).
struct KeptMemory {
  // Flats that this plan or an earlier one made; each is all of its storage. Only parameters lie
  // in them.
  std::vector<at::Tensor> flats;
  // If parameters are sharded: the pieces that this rank holds.
  std::vector<Piece> held;
};

// Which rank holds what under a plan.
struct Placements {
  // As Plan::owners.
  layout::Placement owners;
  // As ParameterShards::holders; nullopt: every rank has all parameters.
  std::optional<layout::Placement> holders;
};

// Which rank updates what of the trainable parameters. It does not change as long as the strategy
// lives.
struct Plan {
  // Whether each element of the trainable parameters is in the pieces of only one rank.
  bool sharded = false;
  // The pieces of all ranks, as a placement of the list of parameters that the strategy was made
  // of. No rank has pieces of frozen parameters. Offsets are ignored.
  layout::Placement owners;
  // A hash of the layout: trainable parameters, buckets and slices. Ranks whose hashes differ must
  // not communicate.
  uint64_t fingerprint = 0;
  // For reports and tests.
  int64_t buckets = 0;
};

// The start of a step, with the same values on all ranks.
struct StepStart {
  int64_t step = 0;
  // Above 0. It is known here because gradients are divided while backward still runs.
  double divisor = 1;
  // The rank whose buffers all ranks take over: the highest one with input. -1: the last rank.
  int buffers_from = -1;
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  // The pieces that this rank updates, at most one of each trainable parameter. ddp: every rank has
  // every parameter as one whole piece. Sharded: each element is in the pieces of exactly one rank;
  // pieces begin at multiples of 16 elements; the piece of a parameter without elements belongs to
  // rank 0.
  virtual const std::vector<Piece>& pieces() const = 0;

  virtual const Plan& plan() const = 0;

  // The placements that a plan of this strategy would have if it trained the parameters whose
  // `trained` is true. Pure.
  virtual Placements PlacementsFor(const std::vector<bool>& trained) const = 0;

  // Where the parameters lie. It lives as long as the strategy.
  virtual const ParameterStore& store() const = 0;
  virtual ParameterStore& store() = 0;

  // The context for forwards of the model. The strategy must outlive it.
  virtual std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                              at::Generator generator) = 0;

  // Discards the gradients of the last step.
  virtual void BeginStep(const StepStart& start) = 0;

  // Called before each forward of a step.
  virtual void BeginMicroBatch(bool last) = 0;

  // Called instead of BeginMicroBatch if this rank has no input. If the context is collective, a
  // forward and backward of any batch must follow, whose gradients are discarded. Otherwise no
  // forward follows.
  virtual void BeginJoinedMicroBatch(bool last) = 0;

  // Called after the last backward. Reduces the gradients that backward did not reach, and waits
  // for gradients and buffers. `reduced`: called once for each bucket, in their order, as soon as
  // the gradients of its pieces are the reduced ones; it may update these pieces, while later
  // buckets are still being reduced. The first error that it returns is the result, and it is not
  // called after any error. Null: not called.
  using BucketReduced = std::function<absl::Status(size_t bucket)>;
  virtual absl::Status FinishBackward(const BucketReduced& reduced) = 0;
  absl::Status FinishBackward() { return FinishBackward(nullptr); }

  // For each of pieces(): undefined, or a float32 scalar on its device. The scalar is 1 if no
  // micro-batch of any rank used the parameter in this step, otherwise 0. Undefined means 0; on the
  // CPU each 0 is undefined. Where ranks have pieces of one parameter, the values are the same.
  // They are known when `reduced` is called for the piece's bucket, and after FinishBackward, until
  // the next BeginStep. A parameter without elements counts as used.
  virtual const std::vector<at::Tensor>& unused() const = 0;

  // Returns `mine` of every rank, sums over its own pieces, in rank order: float64 [ranks, N] of
  // float64 [N], on the communicators' device. A collective, except if each rank has all pieces:
  // then it returns only `mine`.
  virtual absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) = 0;

  // Called after the update of pieces(). Starts to send the new values to all ranks. Forwards in a
  // context of MakeContext wait for the values that they need. Any other code must call
  // AwaitParameters before it reads parameters (or those of the shards, if there are any) or their
  // memory.
  virtual void FinishUpdate() = 0;
  virtual absl::Status AwaitParameters() = 0;

  // Called after FinishBackward if the step is left out. Gives the buffers the values that they had
  // at BeginStep.
  virtual void RestoreBuffers() = 0;
  // The same for a decision that only the device knows: `skip` is a float32 scalar there. If it is
  // 0, the buffers keep their values.
  virtual void RestoreBuffersIf(const at::Tensor& skip) = 0;

  // Compares hashes of the bits of all parameters and buffers over all ranks (with fsdp, of the
  // buffers only). A collective. DATA_LOSS: ranks differ; the message names them and the first
  // parameter or buffer in which they differ.
  virtual absl::Status VerifyParametersEqual(int64_t step) = 0;

  // Called before another plan of the same strategy is made for the same model; that plan is given
  // the result. The values stay where they are: in the memory of the parameters' tensors, or in the
  // shards, which outlive the strategy if somebody holds them. After it, only the destructor may be
  // called.
  virtual KeptMemory ReleaseModel() = 0;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_STRATEGY_H_
