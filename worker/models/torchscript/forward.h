// The inputs and outputs of the method forward of a TorchScript module, and the attributes that
// forward assigns. All are read from the code, without running it.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_FORWARD_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_FORWARD_H_

#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "torch/csrc/jit/api/module.h"

namespace muster::models {

// Attributes that are tensors: the qualified name of the class, and the name of the attribute.
using AssignedTensors = std::set<std::pair<std::string, std::string>>;

// Returns the tensors that forward, or any method that it calls, assigns. INVALID_ARGUMENT if there
// is no method forward with one argument, or if forward changes values that no checkpoint contains:
// parameters by assignment, attributes that are not tensors, lists and dictionaries.
absl::StatusOr<AssignedTensors> CheckForward(const torch::jit::Module& top);

bool TakesAndGivesOneTensor(const torch::jit::Module& module);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_FORWARD_H_
