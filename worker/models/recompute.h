// Activation checkpointing (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016;
// PyTorch's torch.utils.checkpoint, the re-entrant kind). Only the inputs of a unit's forward are
// kept; backward runs the forward once more.
// Values, gradients, buffers and random numbers have the same bits as in training without
// recomputation. The exception: contributions to one parameter's gradient, from several calls of
// the unit or from another unit, are added in another order.
#ifndef MUSTER_WORKER_MODELS_RECOMPUTE_H_
#define MUSTER_WORKER_MODELS_RECOMPUTE_H_

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"

namespace muster::models {

// Returns unit.ForwardMany(inputs, context), for a forward that computes gradients. Backward runs
// the forward again with the buffers, the generator, the mode and the autocast state of this call,
// and then restores its own. This happens once, when the gradients of all outputs in the backward
// are complete. Throws ModelError if the unit changes an input in place. context and unit must
// outlive the graph.
Tensors ForwardRecomputed(Unit& unit, const Tensors& inputs, ForwardContext& context);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_RECOMPUTE_H_
