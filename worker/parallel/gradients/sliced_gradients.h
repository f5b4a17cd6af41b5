// The core of every strategy that shards gradients. Collects gradients in flat groups while
// backward runs (gradient_buckets.h). When a group is complete, it is reduced into this rank's
// slice, and the memory of the full group is freed. Also sends the buffers, between the last
// forward and the first reduction of the last micro-batch.
//
// Groups are reduced in the order of the list, which is the same on every rank. At most two
// reductions are in flight; before a third one begins, backward waits for the oldest.
//
// Threading: one thread, which calls backward. Errors: Finish returns the first error of the step.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_SLICED_GRADIENTS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_SLICED_GRADIENTS_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"
#include "worker/parallel/buffer_sync.h"
#include "worker/parallel/gradients/gradient_buckets.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

enum class ReduceEvery {
  // Gradients are added up locally and reduced in the last micro-batch: one reduction per step,
  // with the bits of ddp.
  kStep,
  // The gradients of each micro-batch are reduced and added to the slice: one reduction per
  // micro-batch. No full-size gradients stay between micro-batches. The order of additions differs
  // from ddp.
  kMicroBatch,
};

class SlicedGradients {
 public:
  struct Options {
    ReduceEvery reduce_every = ReduceEvery::kStep;
    // Sends gradients of float32 groups as bfloat16, which halves the bytes. The sums are float32.
    bool in_bfloat16 = false;
  };

  // parameters: the trainable parameters, which have passed CheckParameters. groups: their members
  // are indices of `parameters`. labels: names of the groups, for errors. The communicator must
  // outlive this object.
  SlicedGradients(std::vector<models::Parameter> parameters, std::vector<layout::Group> groups,
                  std::vector<std::string> labels, const std::vector<models::Buffer>& buffers,
                  comm::Communicator* communicator, const Options& options);
  // Waits for the reductions and the broadcast that are in flight.
  ~SlicedGradients();

  // This rank's slice of the reduced gradients of a group, always in the same memory.
  const at::Tensor& slice(size_t group) const { return slices_[group]; }

  // The observer for the contexts of the model's forwards.
  models::UseObserver* use_observer() { return &paths_; }

  // See the methods of Strategy with these names; Finish is FinishBackward. Buckets are groups
  // here.
  void BeginStep(const StepStart& start);
  void BeginMicroBatch(bool last) { BeginPass(last, GradientBuckets::Gradients::kCount); }
  void BeginJoinedMicroBatch(bool last);
  absl::Status Finish(const Strategy::BucketReduced& reduced);

  // Returns whether a micro-batch of this rank used the parameter in this step.
  bool used(size_t parameter) const { return buckets_->used(parameter); }

  // Called during backward when this pass brings no further gradient to the group; on all ranks at
  // the same place between their gathers. The group is then reduced in its turn, even if this rank
  // did not use some of its parameters. Without the call only Finish would reduce the group.
  // Another rank could then wait for this reduction before the next gather: a deadlock.
  void Close(size_t group) { buckets_->Close(group); }

  void RestoreBuffers() { buffer_sync_.Restore(); }
  void RestoreBuffersIf(const at::Tensor& skip) { buffer_sync_.RestoreIf(skip); }

 private:
  struct Reduction {
    size_t group = 0;
    // The result, if it has to be added to the slice's sum of earlier micro-batches. Undefined: the
    // result goes directly to the slice.
    at::Tensor sum;
    std::unique_ptr<comm::Work> work;
  };

  void BeginPass(bool last, GradientBuckets::Gradients gradients);
  void Reduce(size_t group, at::Tensor flat);
  void AwaitOldestReduction();
  void SendBuffers();
  void Note(const absl::Status& status) {
    if (error_.ok()) error_ = status;
  }

  comm::Communicator* const communicator_;
  const Options options_;
  const std::vector<std::string> labels_;
  std::vector<at::Tensor> slices_;
  BufferSync buffer_sync_;
  std::unique_ptr<GradientBuckets> buckets_;
  GradientPaths paths_;

  // State of the current step.
  StepStart start_;
  int64_t micro_batches_ = 0;  // number of micro-batches that have begun
  bool last_ = false;          // whether the last micro-batch has begun
  bool buffers_sent_ = false;
  std::deque<Reduction> reducing_;
  absl::Status error_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_SLICED_GRADIENTS_H_
