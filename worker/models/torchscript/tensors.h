// The tensors of a TorchScript file: parameters, buffers, and attributes that share a tensor.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_TENSORS_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_TENSORS_H_

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "common/problems/problems.h"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/deferred_values.h"
#include "worker/models/torchscript/file.h"
#include "worker/models/torchscript/forward.h"

namespace muster::models {

// One attribute of one of the file's modules.
struct ScriptSlot {
  c10::intrusive_ptr<c10::ivalue::Object> owner;
  size_t index;

  at::Tensor Get() const { return owner->getSlot(index).toTensor(); }
  void Set(const at::Tensor& tensor) const { owner->setSlot(index, tensor); }
};

struct ScriptTensor {
  // The later kind counts if attributes share a tensor.
  enum class Kind {
    kConstant,  // keeps the value from the file
    kBuffer,
    kParameter,
  };
  std::vector<std::string> names;  // of all attributes with this tensor, in module order
  std::vector<ScriptSlot> slots;   // in the same order
  std::set<std::string> children;  // the top module's children with it; "": the module itself
  Kind kind = Kind::kConstant;
  bool assigned = false;  // forward assigns a new tensor to the attribute
  bool deferred = false;  // its values are deferred
  at::Tensor tensor;
};

// Returns all tensors, each once, in the order of the modules.
std::vector<ScriptTensor> FindTensors(const torch::jit::Module& top,
                                      const AssignedTensors& assigned);

// Adds problems: parameters that cannot be trained, a file without parameters, and tensors that
// share a part of their memory.
void CheckTensors(const std::vector<ScriptTensor>& tensors, Problems* problems);

// Replaces each parameter without memory by a separate leaf tensor without memory, whose values are
// those in the file. Gives all other tensors memory.
void DeferParameters(std::vector<ScriptTensor>* tensors, FileStorages* storages,
                     DeferredValues* deferred);

// Replaces each other parameter, and each buffer, by a separate leaf tensor. Attributes that shared
// a tensor in the file share the new tensor.
void Separate(std::vector<ScriptTensor>* tensors);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_TENSORS_H_
