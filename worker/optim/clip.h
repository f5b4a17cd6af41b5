// The exact global L2 norm of gradients, and clipping by it, as torch.nn.utils.clip_grad_norm_.
#ifndef MUSTER_WORKER_OPTIM_CLIP_H_
#define MUSTER_WORKER_OPTIM_CLIP_H_

#include <array>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::optim {

// A sum as two doubles, high + low, with twice the precision of a double. (T. J. Dekker, "A
// floating-point technique for extending the available precision", 1971.) The rounding error of its
// additions (about their number times 2^-106) changes the float32 of the norm in no practical case.
// So the norm does not depend on how tensors are placed, divided among ranks, or cut at multiples
// of 16 elements.
using SquareSum = std::array<double, 2>;

// Returns the sum of the squares of all elements of all gradients: float32 or float64, contiguous,
// on the CPU. Squares of float32 are exact. Each group of 16 squares, from the beginning of a
// tensor, is added in plain float64 (relative error 2^-51 at most). The groups' sums are added as
// described above.
SquareSum SumOfSquares(const std::vector<at::Tensor>& gradients);

// Returns the L2 norm from sums of squares, added in order; the root is rounded to float32 once.
// The norm is finite exactly if all elements are finite and the norm fits into float32.
float NormOf(const std::vector<SquareSum>& sums);

// Multiplies every element of all gradients (on the CPU, as above), in their own type.
void ScaleGradients(const std::vector<at::Tensor>& gradients, float factor);

// Multiplies every gradient by max_norm / (norm + 1e-6) if this factor is below 1. `norm`: the norm
// of these gradients, finite.
void ClipGradients(const std::vector<at::Tensor>& gradients, float norm, double max_norm);

// ---- The same functions for gradients on another device. The host does not wait.

// Returns the sum of the squares of all elements of all gradients, a float64 scalar on `device`.
// The squares of a tensor are added in float64 in the order of LibTorch's norm, so the result
// depends on where tensors are cut.
at::Tensor SumOfSquaresOn(c10::Device device, const std::vector<at::Tensor>& gradients);

// Returns the factor of ClipGradients for this norm: a float64 scalar, as `norm` is.
at::Tensor ClipFactor(const at::Tensor& norm, double max_norm);

// Multiplies every element of all gradients by a float64 scalar on their device.
void ScaleGradientsBy(const at::Tensor& factor, const std::vector<at::Tensor>& gradients);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_CLIP_H_
