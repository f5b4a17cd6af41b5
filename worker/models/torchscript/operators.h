// Checks the operators that the code of a TorchScript module calls (allowed_operators.h).
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_OPERATORS_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_OPERATORS_H_

#include "absl/status/status.h"
#include "torch/csrc/jit/api/module.h"

namespace muster::models {

// All code that was loaded with the module is checked, whatever forward calls of it: all methods of
// all its classes, and all functions. So it does not matter which class an interface stands for.
// INVALID_ARGUMENT: operators that are not allowed, each with the method and the line.
absl::Status CheckOperators(const torch::jit::Module& top);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_OPERATORS_H_
