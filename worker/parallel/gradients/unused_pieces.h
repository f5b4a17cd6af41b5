// Finds the pieces whose parameters no rank used in a step, from the marks in the reduced gradients
// (see Mark). All ranks find the same parameters, because the reduced gradients are the same.
//
// On the CPU every piece is checked; a used piece costs about one comparison. On another device a
// check is work for the device, so the pieces that this rank itself used are skipped: they are
// used. The host does not wait.
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// Threading: one thread, which calls FinishBackward.
class UnusedPieces {
 public:
  // pieces: of the strategy (Strategy::pieces); must be valid at each call. trainable: indices of
  // the trainable parameters, rising. used: whether a micro-batch of this rank used trainable
  // parameter number i in this step.
  UnusedPieces(const std::vector<Piece>& pieces, const std::vector<size_t>& trainable,
               std::function<bool(size_t i)> used);

  // See Strategy::unused.
  const std::vector<at::Tensor>& flags() const { return flags_; }

  void BeginStep();

  // Returns a callback for FinishBackward that checks the pieces of a bucket and then calls
  // `reduced`, which may be null.
  Strategy::BucketReduced LookBefore(const Strategy::BucketReduced& reduced);

 private:
  void Look(size_t bucket);

  const std::vector<Piece>& pieces_;
  const std::function<bool(size_t)> used_;
  std::vector<size_t> number_;                // of each piece's parameter in `trainable`
  std::vector<std::vector<size_t>> buckets_;  // the pieces of each bucket
  const at::Tensor one_;                      // on the CPU
  std::vector<at::Tensor> flags_;
  bool any_ = false;  // whether a flag is defined
};

// The mark: -0.0 in all elements of the gradient of a parameter that no rank used in a step. The
// mark needs no message, and costs nothing for parameters that are used.
//
// A rank that did not use a parameter contributes -0.0 for each element. A rank that used the
// parameter contributes 0.0 in place of each -0.0. In IEEE 754, x + -0.0 is x for every x, and a
// sum is -0.0 only if both numbers are. (Exceptions: rounding downwards, and flushing small sums to
// zero.) So the sum of all ranks, in any order, is -0.0 everywhere exactly if no rank used the
// parameter. Division by a positive number and conversion to bfloat16 keep the sign.
//
// A used parameter has the mark, too, if all elements of its gradient are negative and round to
// zero in the division or conversion (magnitudes of about 1e-45).
//
// All tensors are float32 or float64, and contiguous unless a comment says otherwise. No graph is
// made. On a device other than the CPU the host does not wait.

// Writes the mark to the elements [begin, end) of a flat tensor.
void Mark(const at::Tensor& flat, int64_t begin, int64_t end);

// Copies `from` to `to`, with 0.0 in place of -0.0. `from` has the same number of elements; it may
// have another floating-point type, and need not be contiguous.
void CopyUnmarked(const at::Tensor& to, const at::Tensor& from);

// Returns whether a tensor on the CPU has the mark: it is not empty, and each element is -0.0.
bool IsMarked(const at::Tensor& gradient);

// Returns the same as a float32 scalar on the tensor's device, 1 or 0.
at::Tensor MarkedOnDevice(const at::Tensor& gradient);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_PIECES_H_
