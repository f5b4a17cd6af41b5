// Finds the pieces whose parameters no rank used in a step, from the marks in the reduced gradients
// (see Mark). All ranks find the same parameters, because the gradients are the same.
//
// On the CPU every piece is looked at, which costs one comparison where the parameter was used. On
// another device a look is work for the device, so the parameters that this rank used itself are
// not looked at: they are used. The host does not wait.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_

#include <cstddef>
#include <cstdint>
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

// A mark in the gradients of parameters that no rank used in a step. It needs no message, and costs
// nothing where all parameters are used.
//
// A rank that did not use a parameter contributes -0.0 for each element; a rank that used it
// contributes 0.0 in place of each -0.0. In IEEE 754, x + -0.0 is x for every x, and a sum is -0.0
// only if both numbers are (except with rounding downwards, or if small sums are flushed to zero).
// So the sum of all ranks, in any order, consists of -0.0 exactly if no rank used the parameter. A
// division by a positive number and a conversion to bfloat16 keep the sign.
//
// Where every element of a used parameter's gradient is negative and rounds to zero in that
// division or conversion (magnitudes of about 1e-45), the parameter has the mark, too.
//
// All tensors are float32 or float64, and contiguous unless the comment says otherwise. No graph is
// made. On a device other than the CPU the host does not wait.

// Writes the mark to the elements [begin, end) of a flat tensor.
void Mark(const at::Tensor& flat, int64_t begin, int64_t end);

// to = from, with 0.0 in place of -0.0. `from` has the same number of elements; it may have another
// floating-point type, and need not be contiguous.
void CopyUnmarked(const at::Tensor& to, const at::Tensor& from);

// Whether a tensor on the CPU has the mark: it has elements, and each of them is -0.0.
bool IsMarked(const at::Tensor& gradient);

// The same on the tensor's device: a float32 scalar, 1 or 0.
at::Tensor MarkedOnDevice(const at::Tensor& gradient);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_
