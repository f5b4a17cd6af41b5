// The tensors of a TorchScript file: which are parameters, which are buffers, and where the file
// shares them.
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
  // A later kind wins where attributes share a tensor.
  enum class Kind {
    kConstant,  // stays as the file has it
    kBuffer,
    kParameter,
  };
  std::vector<std::string> names;  // of all attributes that are this tensor, the first one first
  std::vector<ScriptSlot> slots;   // likewise
  std::set<std::string> children;  // the top module's children in which they lie; "": in itself
  Kind kind = Kind::kConstant;
  bool assigned = false;  // by forward, anew
  at::Tensor tensor;
};

// All of them, each once, in the order of the modules.
std::vector<ScriptTensor> FindTensors(const torch::jit::Module& top,
                                      const AssignedTensors& assigned);

// Notes parameters that cannot be trained, none at all, and tensors that share a part of their
// memory.
void CheckTensors(const std::vector<ScriptTensor>& tensors, Problems* problems);

// Puts a tensor of its own, a leaf, behind each parameter and buffer, the same one wherever the
// file shared it.
void Separate(std::vector<ScriptTensor>* tensors);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_TENSORS_H_
