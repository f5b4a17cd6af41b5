// Gradients in slices: collected in flat groups while backward runs (gradient_buckets.h), reduced
// into this rank's slice of each as soon as it is complete, their full size freed then. The core of
// every strategy that shards gradients; also sends the buffers, which belong between the last
// forward and the first reduction.
//
// The order in which groups are reduced is that of the list, the same on every rank. At most two
// reductions are under way; the next one waits for the oldest, and backward with it.
//
// Threading: one thread, the one that calls backward. Errors come from Finish, the first of the
// step.
#ifndef MUSTER_WORKER_PARALLEL_SLICED_GRADIENTS_H_
#define MUSTER_WORKER_PARALLEL_SLICED_GRADIENTS_H_

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
#include "worker/parallel/gradient_buckets.h"
#include "worker/parallel/gradient_paths.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

enum class ReduceEvery {
  // Gradients add up locally and are reduced in the last micro-batch: the bits of ddp, and one
  // reduction a step.
  kStep,
  // Each micro-batch's are reduced and added to the slice: full-size gradients never stay between
  // micro-batches, for one reduction per micro-batch. The additions have another order than ddp's.
  kMicroBatch,
};

class SlicedGradients {
 public:
  struct Options {
    ReduceEvery reduce_every = ReduceEvery::kStep;
    // Gradients travel as bfloat16, half the bytes; they are added in float32. Of float32 groups.
    bool in_bfloat16 = false;
  };

  // parameters: the trainable ones, as CheckParameters wants them; groups: over their indices;
  // labels: of the groups, for errors. The communicator outlives this.
  SlicedGradients(std::vector<models::Parameter> parameters, std::vector<layout::Group> groups,
                  std::vector<std::string> labels, const std::vector<models::Buffer>& buffers,
                  comm::Communicator* communicator, const Options& options);
  // Waits for what is in flight.
  ~SlicedGradients();

  // This rank's slice of the reduced gradients of a group: the same memory all the time.
  const at::Tensor& slice(size_t group) const { return slices_[group]; }

  // For the contexts of the model's forwards.
  models::UseObserver* use_observer() { return &paths_; }

  // As Strategy's of the same names.
  void BeginStep(const StepStart& start);
  void BeginMicroBatch(bool last) { BeginPass(last, GradientBuckets::Gradients::kCount); }
  void BeginJoinedMicroBatch(bool last);
  absl::Status Finish();
  void RestoreBuffers() { buffer_sync_.Restore(); }

 private:
  struct Reduction {
    size_t group = 0;
    at::Tensor sum;  // where it is to be added to what earlier micro-batches gave; else undefined
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

  // This step's.
  StepStart start_;
  int64_t micro_batches_ = 0;  // begun
  bool last_ = false;          // in the last of them
  bool buffers_sent_ = false;
  std::deque<Reduction> reducing_;
  absl::Status error_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_SLICED_GRADIENTS_H_
