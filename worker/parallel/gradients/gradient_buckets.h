// Collects gradients in flat buckets while backward runs, and reports each bucket when it is
// complete, in the order of the buckets.
//
// The first gradient that a parameter gets for an empty bucket is copied to the parameter's place
// there (without -0.0: unused_pieces.h), and grad() becomes a view of this place. Later
// micro-batches add to it there. In a pass that completes the buckets, the hook also counts the
// gradients, and buckets are handed over while backward runs: strictly in their order, which is the
// same on every rank.
//
// It owns the post-accumulate-gradient hook of every parameter (autograd has one per tensor) until
// it is destroyed. Threading: one thread, the one that calls backward.
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
    // stays a view of it.
    kKept,
    // A bucket has memory from its first gradient until it is complete. Then the memory belongs to
    // the receiver, and grad() of the bucket's parameters is undefined.
    kHandedOver,
  };
  // Called when bucket number `bucket` is complete, in the order of the buckets. `flat` is its
  // memory; the padding is zero.
  using Complete = std::function<void(size_t bucket, at::Tensor flat)>;

  // parameters: the trainable ones, which have passed CheckParameters. groups: the buckets; their
  // members are indices of `parameters`. who: names this rank in errors, such as "rank 1".
  GradientBuckets(std::vector<models::Parameter> parameters, std::vector<layout::Group> groups,
                  Memory memory, Complete complete, std::string who);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Discards all gradients.
  void BeginStep(int64_t step);

  // What happens to the gradients of a pass.
  enum class Gradients {
    kCount,  // they are added to the buckets
    // They are discarded when they arrive, so that the pass adds nothing. They are still counted to
    // find out when a bucket is complete. Only such passes may follow, up to the one that
    // completes.
    kDropped,
  };

  // Called before the forward and backward of a micro-batch. completes: the buckets are complete
  // after the gradients of this pass. A pass after one that completed starts with empty buckets.
  void BeginPass(bool completes, Gradients gradients = Gradients::kCount);

  // Called once for each gradient that the backward of this pass will bring to a parameter. Without
  // a call, one gradient is expected. If an expected gradient does not come, the parameter's bucket
  // is complete only after Close, or in Finish.
  void Expect(size_t parameter) { ++parameters_[parameter].expected; }

  // Called during the backward of a pass: this pass brings no further gradient to any parameter of
  // the bucket. In a pass that completes, its parameters that no micro-batch used get the mark of
  // unused_pieces.h, and the bucket is complete.
  void Close(size_t bucket);

  // Called after the backward of a pass that completes. Parameters that no micro-batch used get the
  // mark, and the remaining buckets are handed over, one after the other.
  // FAILED_PRECONDITION: a parameter had more gradients in one backward than expected, or one after
  // Close, or a pass with kCount followed one with kDropped. INTERNAL: LibTorch or the receiver
  // threw an exception in a hook. Nothing is handed over after an error.
  absl::Status Finish();

  // Whether the parameter got a gradient in this step that was not dropped.
  bool used(size_t parameter) const { return parameters_[parameter].used; }

 private:
  struct Parameter {
    models::Parameter parameter;
    size_t bucket = 0;
    int64_t offset = 0;
    // Its place in the bucket, with its shape; undefined while the bucket has no memory.
    at::Tensor view;
    bool used = false;       // in this step
    bool in_bucket = false;  // its gradient of this step lies in the bucket
    bool ready = false;      // its gradient of this step is complete
    int expected = 0;        // number of gradients in this pass, as Expect said
    int arrived = 0;         // number of gradients that have arrived in this pass
  };
  struct Bucket {
    layout::Group group;
    at::Tensor flat;
    int pending = 0;  // number of parameters whose gradient is not ready
  };
  // Autograd calls it after it has accumulated a gradient of a parameter.
  struct Hook;

  void Arrived(size_t index);
  // Runs `action`; an exception becomes the error of this step, with the parameter's name.
  template <typename Action>
  void Guarded(const Parameter& parameter, const Action& action);
  void MoveIntoBucket(Parameter& parameter);
  // Fills the parameter's place with the mark unless it has a gradient of this step. Makes grad() a
  // view of this place.
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

// Counts how many gradients a backward will bring to each parameter if units are recomputed.
class GradientPaths : public models::UseObserver {
 public:
  // trainable: the trainable ones of the model's parameters. expect: called once for each gradient
  // that will come, with the index of its parameter in `trainable`. before_recomputation: called by
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
  // By parameter: whether a call that is not recomputed has used it in this pass.
  std::vector<bool> directly_;
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_GRADIENT_BUCKETS_H_
