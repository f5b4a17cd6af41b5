// Runs the graph of a unit, operator by operator through LibTorch's dispatcher, as Python does. So
// autograd, autocast and kernels are those of Python's eager mode, and the results have the same
// bits.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_RUN_H_
#define MUSTER_WORKER_MODELS_EXPORTED_RUN_H_

#include <functional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "worker/models/exported/graph.h"
#include "worker/models/unit.h"

namespace muster::models::exported {

// The surroundings of a run.
struct RunContext {
  const std::string& who;  // names the model and the unit in errors
  ForwardContext& context;
  // Calls a unit below: its index in Graph::units.
  const std::function<Tensors(size_t unit, const Tensors& inputs)>& call;
};

// Runs a unit with these tensors: its inputs, parameters, buffers and constants, in the order of
// the frame (graph.h). Numbers among the inputs and the outputs are scalar tensors on the CPU.
// Random numbers come from the context's generator. Throws ModelError for an error of an operator;
// errors of `call` and a lack of memory pass through.
Tensors RunUnit(const GraphUnit& unit, Tensors tensors, const RunContext& run);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_RUN_H_
