// Collects gradients in flat buckets while backward runs, and reports each bucket when it is
// complete.
//
// The first gradient of a parameter for an empty bucket is copied to the parameter's place in the
// bucket (without -0.0: unused_pieces.h). grad() becomes a view of this place, and later
// micro-batches add to the place. In a pass that completes the buckets, the hook also counts the
// gradients. Complete buckets are handed over while backward runs, strictly in their order, which
// is the same on every rank.
//
// Owns the post-accumulate-gradient hook of every parameter (autograd has one per tensor) until it
// is destroyed. Threading: one thread, which calls backward.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_BUCKETS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_BUCKETS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"

namespace muster::parallel {

class GradientBuckets {
 public:
  enum class Memory {
    // All buckets have memory from the start. After a bucket is complete, grad() of its parameters
    // stays a view of the bucket.
    kKept,
    // A bucket has memory from its first gradient until it is complete. Then the memory belongs to
    // the receiver, and grad() of the bucket's parameters is undefined.
    kHandedOver,
  };
  // Called when the bucket is complete, in the order of the buckets. `flat` is the bucket's memory;
  // the padding is zero.
  using Complete = std::function<void(size_t bucket, at::Tensor flat)>;

  // parameters: the trainable parameters, which have passed CheckParameters. groups: the buckets,
  // whose members are indices of `parameters`. who: this rank in errors ("rank 1").
  GradientBuckets(std::vector<models::Parameter> parameters, std::vector<layout::Group> groups,
                  Memory memory, Complete complete, std::string who);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Starts a step and discards all gradients.
  void BeginStep(int64_t step);

  // The treatment of the gradients of a pass.
  enum class Gradients {
    kCount,  // added to the buckets
    // Discarded on arrival, so that the pass adds nothing, but counted to find out when a bucket is
    // complete. After such a pass, all passes up to the completing pass must drop gradients, too.
    kDropped,
  };

  // Called before the forward and backward of a micro-batch. completes: the buckets are complete
  // after this pass. The pass after a completing pass starts with empty buckets.
  void BeginPass(bool completes, Gradients gradients = Gradients::kCount);

  // Called once for each gradient that the backward of this pass will bring to a parameter. Without
  // a call, one gradient is expected. If an expected gradient does not come, the parameter's bucket
  // is complete only after Close, or in Finish.
  void Expect(size_t parameter) { ++parameters_[parameter].expected; }

  // Called during the backward of a pass that brings no further gradient to the bucket. In a
  // completing pass, parameters of the bucket that no micro-batch used get the mark of
  // unused_pieces.h, and the bucket is complete.
  void Close(size_t bucket);

  // Called after the backward of a completing pass. Parameters that no micro-batch used get the
  // mark, and the remaining buckets are handed over, one after the other. Nothing is handed over
  // after an error.
  // FAILED_PRECONDITION: a parameter had more gradients in one backward than expected, or a
  // gradient after Close, or a pass with kCount followed a pass with kDropped. INTERNAL: LibTorch
  // or the receiver threw an exception in a hook.
  absl::Status Finish();

  // Returns whether the parameter got a gradient in this step that was not dropped.
  bool used(size_t parameter) const { return parameters_[parameter].used; }

 private:
  struct Parameter {
    models::Parameter parameter;
    size_t bucket = 0;
    int64_t offset = 0;
    // Its place in the bucket, in the parameter's shape; undefined while the bucket has no memory.
    at::Tensor view;
    bool used = false;       // in this step
    bool in_bucket = false;  // its gradient of this step lies in the bucket
    bool ready = false;      // its gradient of this step is complete
    int expected = 0;        // number of gradients in this pass that Expect announced
    int arrived = 0;         // number of gradients that have arrived in this pass
  };
  struct Bucket {
    layout::Group group;
    at::Tensor flat;
    int pending = 0;  // number of parameters whose gradient is not ready
  };
  // The hook that autograd calls after it has accumulated a gradient of a parameter.
  struct Hook;

  void Arrived(size_t index);
  // Runs `action`. An exception becomes the error of this step, with the parameter's name.
  template <typename Action>
  void Guarded(const Parameter& parameter, const Action& action);
  void MoveIntoBucket(Parameter& parameter);
  // Fills the parameter's place with the mark, unless the place has a gradient of this step. Makes
  // grad() a view of the place.
  void SettleInBucket(Parameter& parameter);
  void Allocate(Bucket& bucket);
  void MarkReady(Parameter& parameter);
  void MarkAllReady(Bucket& bucket);
  void StartOver();
  void HandOver();

  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  const Memory memory_;
  const Complete complete_;
  const std::string who_;

  // State of the current step.
  int64_t step_ = 0;
  bool completes_ = false;
  Gradients gradients_ = Gradients::kCount;
  absl::Status error_;
  size_t next_ = 0;  // the first bucket that is not handed over
};

// Counts the gradients that a backward will bring to each parameter if units are recomputed.
class GradientPaths : public models::UseObserver {
 public:
  // trainable: the trainable parameters of the model. expect: called once for each gradient that
  // will come, with the index of its parameter in `trainable`. before_recomputation: called by
  // BeforeRecomputation.
  GradientPaths(const std::vector<models::Parameter>& trainable,
                std::function<void(size_t parameter)> expect,
                std::function<void()> before_recomputation);

  // Called before the forward of a micro-batch.
  void BeginPass();
  void Used(const models::Unit& unit, bool recomputed) override;
  void BeforeRecomputation() override { before_recomputation_(); }

 private:
  const std::function<void(size_t parameter)> expect_;
  const std::function<void()> before_recomputation_;
  std::unordered_map<const void*, size_t> index_of_;
  // Whether a call that is not recomputed has used a parameter in this pass, by parameter.
  std::vector<bool> directly_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_BUCKETS_H_
