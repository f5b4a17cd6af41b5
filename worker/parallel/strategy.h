// Training of one model by several ranks: the step protocol of ddp, sharded_ddp and fsdp.
// parameter_store.h describes access to the parameters between steps.
//
// A step:
//   strategy->BeginStep({step, divisor, buffers_from});
//   for each micro-batch m: strategy->BeginMicroBatch(m is the last); forward; backward;
//   strategy->FinishBackward();            // the gradients of pieces() are the reduced ones
//   scale, clip and step the optimizer over pieces(), except those that are unused(); or
//   FinishBackward steps bucket by bucket
//   strategy->FinishUpdate();              // if the step is left out: RestoreBuffers() instead
// RestoreBuffersIf, then FinishUpdate, if only the device knows whether the step is left out.
//
// The reduced gradient is the sum over ranks, in rank order, of each rank's sum over micro-batches,
// divided by `divisor`. A rank that did not use a parameter adds zero. The optimizer must not
// change parameters that no rank used (unused()), nor their state, as in PyTorch's
// DistributedDataParallel with find_unused_parameters. The gradients of these parameters are zero.
// Forwards run in a context of MakeContext.
//
// All ranks have the same number of micro-batches in a step. A rank without input for a
// micro-batch, and for all later ones of the step, has joined (S. Li et al., PyTorch's Join). Such
// a rank calls BeginJoinedMicroBatch instead of BeginMicroBatch, and adds a zero gradient. The rank
// steps the optimizer as all other ranks do, so that parameters and state stay equal.
//
// Life cycle: one strategy per generation and plan. The strategy owns the post-accumulate-gradient
// hook of every trainable parameter (autograd has one per tensor) until it is destroyed. Its
// destructor waits for the operations in flight. Its communicators must outlive it and have no
// other users.
// Devices: all tensors are on the communicators' device: buffers and parameters (before the
// strategy is made), pieces and gradients. Exception: fsdp copies this rank's slices to the device,
// so parameters may be on the CPU until then. On a device other than the CPU, work is ordered in
// the current stream, and the host waits only if a communicator's Wait does.
// Threading: one thread, which calls backward. For tensors on the CPU, hooks run in this thread.
// Otherwise they run in autograd's thread of the device, while the caller waits in backward.
// Errors: those of the communicator; after an error, a new communicator and a new strategy are
// needed. A forward, and with fsdp a backward, throws models::ContextError if parameters did not
// arrive. Nothing else is thrown through autograd.
#ifndef MUSTER_WORKER_PARALLEL_STRATEGY_H_
#define MUSTER_WORKER_PARALLEL_STRATEGY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/sharding/placement.h"
#include "worker/models/unit.h"
#include "worker/parallel/parameter_store.h"

namespace muster::parallel {

// The memory that a plan leaves for the next plan. A group of the next plan stays in this memory if
// its members already lie at the right offsets (in_place.h).
struct KeptMemory {
  // Flats that this plan or an earlier plan made. Each fills its storage; only parameters lie
  // there.
  std::vector<at::Tensor> flats;
  // The pieces that this rank holds, if parameters are sharded.
  std::vector<Piece> held;
};

// The pieces of each rank under a plan.
struct Placements {
  // See Plan::owners.
  sharding::Placement owners;
  // See ParameterShards::holders. nullopt: every rank has all parameters.
  std::optional<sharding::Placement> holders;
};

// The assignment of trainable parameters to the ranks that update them. It is constant during the
// life of the strategy.
struct Plan {
  // Whether each element of the trainable parameters is in the pieces of only one rank.
  bool sharded = false;
  // The pieces of all ranks, as a placement of the list of parameters that the strategy was made
  // of. No rank has pieces of frozen parameters. Offsets are ignored.
  sharding::Placement owners;
  // A hash of the layout: trainable parameters, buckets and slices. Ranks with different hashes
  // must not communicate.
  uint64_t fingerprint = 0;
  // The number of buckets, for reports and tests.
  int64_t buckets = 0;
};

// The start of a step, with the same values on all ranks.
struct StepStart {
  int64_t step = 0;
  // Above 0. Needed at the start, because gradients are divided while backward still runs.
  double divisor = 1;
  // The rank whose buffers all ranks take over: the highest rank with input. -1: the last rank.
  int buffers_from = -1;
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  // The pieces that this rank updates, at most one of each trainable parameter. ddp: every rank has
  // every parameter as one whole piece. Sharded: each element is in the pieces of exactly one rank.
  // Pieces begin at multiples of 16 elements. The piece of a parameter without elements belongs to
  // rank 0.
  virtual const std::vector<Piece>& pieces() const = 0;

  virtual const Plan& plan() const = 0;

  // Returns the placements of a plan of this strategy that trains the parameters whose `trained` is
  // true. Pure.
  virtual Placements PlacementsFor(const std::vector<bool>& trained) const = 0;

  // The store of the parameters. The store lives as long as the strategy.
  virtual const ParameterStore& store() const = 0;
  virtual ParameterStore& store() = 0;

  // Returns a context for forwards of the model. The strategy must outlive the context.
  virtual std::unique_ptr<models::ForwardContext> MakeContext(models::Mode mode,
                                                              at::Generator generator) = 0;

  // Starts a step and discards the gradients of the last step.
  virtual void BeginStep(const StepStart& start) = 0;

  // Called before each forward of a step.
  virtual void BeginMicroBatch(bool last) = 0;

  // Called instead of BeginMicroBatch if this rank has no input. If the context is collective, a
  // forward and backward of any batch must follow, whose gradients are discarded. Otherwise no
  // forward may follow.
  virtual void BeginJoinedMicroBatch(bool last) = 0;

  // Called after the last backward. Reduces the gradients that backward did not reach, and waits
  // for gradients and buffers.
  // `reduced`: called once for each bucket, in the order of the buckets, when the gradients of the
  // bucket's pieces are reduced. The callback may update these pieces, while later buckets are
  // still being reduced. Its first error becomes the result. Not called after an error. May be
  // null.
  using BucketReduced = std::function<absl::Status(size_t bucket)>;
  virtual absl::Status FinishBackward(const BucketReduced& reduced) = 0;
  absl::Status FinishBackward() { return FinishBackward(nullptr); }

  // A float32 scalar for each of pieces(), on the piece's device. The scalar is 1 if no micro-batch
  // of any rank used the parameter in this step, otherwise 0. Undefined means 0; on the CPU each 0
  // is undefined. All ranks with pieces of a parameter have the same value. The values are valid
  // when `reduced` is called for the piece's bucket, and from FinishBackward to the next BeginStep.
  // A parameter without elements counts as used.
  virtual const std::vector<at::Tensor>& unused() const = 0;

  // Returns `mine` of every rank, in rank order: float64 [ranks, N] of float64 [N], on the
  // communicators' device. `mine`: sums over the rank's own pieces. A collective, unless each rank
  // has all pieces; then the result is only `mine`.
  virtual absl::StatusOr<at::Tensor> GatherSums(const at::Tensor& mine) = 0;

  // Called after the update of pieces(). Starts to send the new values to all ranks. Forwards in a
  // context of MakeContext wait for the values that they need. Other code must call AwaitParameters
  // before it reads parameters or their memory (with shards: the shards).
  virtual void FinishUpdate() = 0;
  virtual absl::Status AwaitParameters() = 0;

  // Called after FinishBackward if the step is left out. Gives the buffers their values of
  // BeginStep.
  virtual void RestoreBuffers() = 0;
  // Does the same if only the device knows whether the step is left out. `skip`: a float32 scalar
  // on the device; if it is 0, the buffers keep their values.
  virtual void RestoreBuffersIf(const at::Tensor& skip) = 0;

  // Compares hashes of the bits of all parameters and buffers over all ranks (with fsdp, of the
  // buffers only). A collective. DATA_LOSS if ranks differ; the message names the ranks and the
  // first parameter or buffer that differs.
  virtual absl::Status VerifyParametersEqual(int64_t step) = 0;

  // Called before another plan of the same strategy is made for the same model; that plan gets the
  // result. The values stay where they are: in the memory of the parameters' tensors, or in the
  // shards, which outlive the strategy while the result is held. Afterwards only the destructor may
  // be called.
  virtual KeptMemory ReleaseModel() = 0;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_STRATEGY_H_
