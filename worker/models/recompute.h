// Activation checkpointing (T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016;
// PyTorch's torch.utils.checkpoint, the re-entrant kind): of a unit's forward only its inputs are
// kept, and backward runs the forward once more to have what it needs. Values, gradients, buffers
// and random numbers have the same bits as in training without it, except the gradients of
// parameters that get several contributions: from several calls of such a unit, or also from
// another unit. These are added in another order.
#ifndef MUSTER_WORKER_MODELS_RECOMPUTE_H_
#define MUSTER_WORKER_MODELS_RECOMPUTE_H_

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"

namespace muster::models {

// unit.ForwardMany(inputs, context), for a forward that computes gradients. In backward it runs
// again with the buffers, the generator, the mode and the autocast state of this call, and
// afterwards restores those of the backward; this happens once, when the gradients of all outputs
// that take part in the backward are there. Throws ModelError if the unit changes an input in
// place. context and unit must outlive the graph.
Tensors ForwardRecomputed(Unit& unit, const Tensors& inputs, ForwardContext& context);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_RECOMPUTE_H_
