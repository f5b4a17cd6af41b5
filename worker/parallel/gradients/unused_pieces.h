// Finds the pieces whose parameters no rank used in a step, from the marks in the reduced gradients
// (unused_mark.h). All ranks find the same parameters, because the gradients are the same.
//
// On the CPU every piece is looked at, which costs one comparison where the parameter was used. On
// another device a look is work for the device, so the parameters that this rank used itself are
// not looked at: they are used. The host does not wait.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// Threading: one thread, the one that calls FinishBackward.
class UnusedPieces {
 public:
  // pieces: as Strategy::pieces; they outlive this object, or no method is called any more.
  // trainable: the trainable parameters, rising. used: whether a micro-batch of this rank used
  // trainable parameter number i in this step.
  UnusedPieces(const std::vector<Piece>& pieces, const std::vector<size_t>& trainable,
               std::function<bool(size_t i)> used);

  // As Strategy::unused.
  const std::vector<at::Tensor>& flags() const { return flags_; }

  void BeginStep();

  // A callback for FinishBackward that looks at the pieces of a bucket before it calls `reduced`,
  // which may be null.
  Strategy::BucketReduced LookBefore(const Strategy::BucketReduced& reduced);

 private:
  void Look(size_t bucket);

  const std::vector<Piece>& pieces_;
  const std::function<bool(size_t)> used_;
  std::vector<size_t> number_;                // of each piece's parameter in `trainable`
  std::vector<std::vector<size_t>> buckets_;  // the pieces of each bucket
  const at::Tensor one_;                      // on the CPU
  std::vector<at::Tensor> flags_;
  bool any_ = false;  // some flag is defined
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_
