// Activation checkpointing (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016;
// PyTorch's torch.utils.checkpoint, the re-entrant kind): of a unit's forward only its input is
// kept, and backward runs the forward once more to have what it needs. Values, gradients, buffers
// and random numbers are those of training without it, to the bit, but for parameters that get
// gradients in several ways: from several calls of such a unit, or also from elsewhere. Their sum
// is taken in another order.
#ifndef MUSTER_WORKER_MODELS_RECOMPUTE_H_
#define MUSTER_WORKER_MODELS_RECOMPUTE_H_

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"

namespace muster::models {

// unit.Forward(x, context), where gradients are wanted. In backward it runs again with the buffers,
// the generator, the mode and the autocast as they are now, and leaves them as they are then.
// Throws ModelError where the unit changes x in place. context and unit must outlive the graph.
at::Tensor ForwardRecomputed(Unit& unit, const at::Tensor& x, ForwardContext& context);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_RECOMPUTE_H_
