// What the method forward of a TorchScript module takes, gives and assigns, read from its code:
// nothing of it runs.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_FORWARD_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_FORWARD_H_

#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "torch/csrc/jit/api/module.h"

namespace muster::models {

// Attributes that are tensors: the class's qualified name, the attribute's.
using AssignedTensors = std::set<std::pair<std::string, std::string>>;

// The tensors that forward, and whatever it calls, assigns anew.
// INVALID_ARGUMENT: no method forward of one argument, or one that changes what no checkpoint
// holds: parameters by assignment, attributes that are no tensors, lists and dictionaries.
absl::StatusOr<AssignedTensors> CheckForward(const torch::jit::Module& top);

bool TakesAndGivesOneTensor(const torch::jit::Module& module);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_FORWARD_H_
