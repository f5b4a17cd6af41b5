// Collects gradients in flat buckets while backward runs, and says, in bucket order, when one is
// complete.
//
// A parameter's first gradient of a pass is copied into its place in the bucket and grad() becomes
// a view of that place; later micro-batches add to it there. In a pass that completes, the hook
// also counts, and buckets are handed over strictly in their order, the same on every rank, while
// backward goes on.
//
// It owns the post-accumulate-gradient hook of every parameter (autograd has one per tensor) until
// it is destroyed. Threading: one thread, the one that calls backward.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENT_BUCKETS_H_
#define MUSTER_WORKER_PARALLEL_GRADIENT_BUCKETS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"

namespace muster::parallel {

class GradientBuckets {
 public:
  enum class Memory {
    // Of all buckets, from the start. After a bucket is complete, grad() of its parameters stays a
    // view of it.
    kKept,
    // Of a bucket, from its first gradient on until it is complete. It is the receiver's then, and
    // grad() of its parameters is undefined.
    kHandedOver,
  };
  // Bucket number `bucket` is complete: `flat` is its memory, padding zero. Called in the order of
  // the buckets.
  using Complete = std::function<void(size_t bucket, at::Tensor flat)>;

  // parameters: the trainable ones, as CheckParameters wants them; groups: over their indices.
  // `who`: for errors, "rank 1".
  GradientBuckets(std::vector<models::Parameter> parameters, std::vector<layout::Group> groups,
                  Memory memory, Complete complete, std::string who);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  // Drops all gradients.
  void BeginStep(int64_t step);

  // Whether the gradients of a pass are wanted.
  enum class Gradients {
    kCount,
    // They are dropped as they come: the pass adds nothing. They still say when a bucket is
    // complete. Only such passes may follow, up to the one that completes.
    kDropped,
  };

  // Before the forward and backward of a micro-batch. `completes`: buckets are complete with its
  // gradients. A pass after one that completed starts from nothing.
  void BeginPass(bool completes, Gradients gradients = Gradients::kCount);

  // Once for each way in which the backward of this pass will bring a gradient to a parameter.
  // Without any, one is expected. Ways that do not come hold its bucket up until Finish.
  void Expect(size_t parameter) { ++parameters_[parameter].expected; }

  // After the backward of a pass that completes: parameters that no micro-batch used get a zero
  // gradient; the remaining buckets are handed over, one after the other. FAILED_PRECONDITION: a
  // parameter had more gradients in one backward than expected, or passes came in another order
  // than said above; INTERNAL: an exception in a hook, of LibTorch or of the receiver. Nothing is
  // handed over after an error.
  absl::Status Finish();

 private:
  struct Parameter {
    models::Parameter parameter;
    size_t bucket = 0;
    int64_t offset = 0;
    at::Tensor
        view;  // its place in the bucket, with its shape; undefined while the bucket has no memory
    bool in_bucket = false;  // the gradient of this step lies there
    bool ready = false;      // and is complete
    // In this pass.
    int expected = 0;
    int arrived = 0;
  };
  struct Bucket {
    layout::Group group;
    at::Tensor flat;
    int pending = 0;  // gradients that are not ready
  };
  // What autograd calls once a parameter's gradient is accumulated.
  struct Hook;

  void Arrived(size_t index);
  void Failed(const Parameter& parameter, const char* what);
  void MoveIntoBucket(Parameter& parameter);
  // Where nothing of this step lies there, zeros do. grad() is a view of it then.
  void SettleInBucket(Parameter& parameter);
  void Allocate(Bucket& bucket);
  void MarkReady(Parameter& parameter);
  void StartOver();
  void HandOver();

  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  const Memory memory_;
  const Complete complete_;
  const std::string who_;

  // This step's.
  int64_t step_ = 0;
  bool completes_ = false;
  Gradients gradients_ = Gradients::kCount;
  absl::Status error_;
  size_t next_ = 0;  // the first bucket that is not handed over
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENT_BUCKETS_H_
