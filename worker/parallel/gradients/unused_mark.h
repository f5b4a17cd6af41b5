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
#ifndef MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_MARK_H_
#define MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_MARK_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace muster::parallel {

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

#endif  // MUSTER_WORKER_PARALLEL_GRADIENTS_UNUSED_MARK_H_
