// What is checked of a TorchScript file before it is used.
//
// Nothing may run before the operators of the code are checked, and there is no need to:
// torch.jit.save writes values.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKS_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKS_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "caffe2/serialize/inline_container.h"
#include "torch/csrc/jit/api/module.h"

namespace muster::models {

// INVALID_ARGUMENT: something in the archive would run while it is loaded:
// - a method __setstate__, which sets an object's attributes from what was saved;
// - the default value of an argument, or the value of a constant of a class, that is no plain value
//   (a call in its place is computed when the class is loaded);
// - objects of classes in C++ (torch.classes), which have a __setstate__ of their own;
// - the format of an old PyTorch (model.json), which has other rules;
// or two of its records have the same name (LibTorch takes no notice of capital letters), or one
// has a name that is too long to be listed, so that another one could be loaded than was read here.
// Throws c10::Error: the archive is damaged, or its code is no TorchScript.
absl::Status CheckNothingRunsWhileLoading(caffe2::serialize::PyTorchStreamReader* archive);

// All code that was loaded with the module is checked (allowed_operators.h), whatever forward calls
// of it: all methods of all its classes, and all functions. So it does not matter which class an
// interface stands for. INVALID_ARGUMENT: operators that are not allowed, each with the method and
// the line.
absl::Status CheckOperators(const torch::jit::Module& top);

// Whether the file at `path` contains all numbers of `tensors`, which were loaded from it. LibTorch
// reads a record into memory of the record's own size and takes the storage's size from the file's
// pickle: if a record was cut off, the tensor would be read beyond the end of its memory. Call it
// before any of them is read. DATA_LOSS: a record is too short.
absl::Status CheckMemory(const std::string& path, const std::vector<at::Tensor>& tensors);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_CHECKS_H_
