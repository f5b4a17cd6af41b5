// The exact global L2 norm of gradients, and clipping by it, as torch.nn.utils.clip_grad_norm_.
#ifndef MUSTER_WORKER_OPTIM_CLIP_H_
#define MUSTER_WORKER_OPTIM_CLIP_H_

#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::optim {

// L2 norm over all elements of all gradients (float32, contiguous, CPU): squares are summed in
// float64 per tensor, the sums in order, the root is rounded to float32 once. So it does not depend
// on how the tensors are cut or placed. Finite exactly when all elements are and the norm fits into float32.
float GradientNorm(const std::vector<at::Tensor>& gradients);

// Multiplies every element of all gradients (as above).
void ScaleGradients(const std::vector<at::Tensor>& gradients, float factor);

// Multiplies every gradient by max_norm / (norm + 1e-6) when that is below 1. `norm`: theirs, finite.
void ClipGradients(const std::vector<at::Tensor>& gradients, float norm, double max_norm);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_CLIP_H_
