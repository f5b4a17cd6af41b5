// A TorchScript module as units of a model: as one unit, or as one unit for each child.
//
// An error of a running script is a ModelError whose text begins with `who`: the model and its
// file. `row`: the shape to which rows are reshaped; empty: no reshape. `tensors`: after Separate.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_UNITS_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_UNITS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torch/csrc/jit/api/module.h"
#include "worker/models/torchscript/tensors.h"
#include "worker/models/unit.h"

namespace muster::models {

std::unique_ptr<Unit> AsOneUnit(const std::string& who, const torch::jit::Module& top,
                                const std::vector<ScriptTensor>& tensors,
                                const std::vector<int64_t>& row);

// Returns whether the top module is a torch.nn.Sequential whose children share nothing.
bool IsSequence(const torch::jit::Module& top, const std::vector<ScriptTensor>& tensors);

// Returns a root that runs the children one after the other. Requires IsSequence.
std::unique_ptr<Unit> AsSequence(const std::string& who, const torch::jit::Module& top,
                                 const std::vector<ScriptTensor>& tensors,
                                 const std::vector<int64_t>& row);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_UNITS_H_
