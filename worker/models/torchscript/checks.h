// The checks of a TorchScript file before it is used.
//
// Nothing may run before the operators of the code are checked. Files of torch.jit.save need no
// code while they are loaded, because torch.jit.save writes values.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKS_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKS_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "caffe2/serialize/inline_container.h"
#include "torch/csrc/jit/api/module.h"

namespace muster::models {

// Throws c10::Error if the archive is damaged, or its code is no TorchScript. INVALID_ARGUMENT if
// something in the archive would run while it is loaded, or could be loaded unchecked:
// - a method __setstate__, which sets an object's attributes from saved values;
// - a default value of an argument, or a value of a constant of a class, that is no plain value (a
//   call would be computed when the class is loaded);
// - objects of classes in C++ (torch.classes), which have their own __setstate__;
// - the format of an old PyTorch (model.json), which has other rules;
// - two records of the same name (LibTorch ignores the case of letters), or a name that is too long
//   to be listed: another record than the checked one could be loaded.
absl::Status CheckNothingRunsWhileLoading(caffe2::serialize::PyTorchStreamReader* archive);

// Checks all code that was loaded with the module (allowed_operators.h), whatever forward calls:
// all methods of all classes, and all functions. So it does not matter which class an interface
// stands for. INVALID_ARGUMENT with the operators that are not allowed, each with the method and
// the line.
absl::Status CheckOperators(const torch::jit::Module& top);

// DATA_LOSS if the file at `path` does not contain all numbers of `tensors`, which were loaded from
// the file. Must be called before any of the tensors is read. LibTorch reads a record into memory
// of the record's own size, and takes the size of the storage from the file's pickle. With a record
// that was cut off, a tensor would be read beyond the end of its memory.
absl::Status CheckMemory(const std::string& path, const std::vector<at::Tensor>& tensors);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKS_H_
