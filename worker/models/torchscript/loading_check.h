// What LibTorch would run while it loads a TorchScript file. Nothing may run before the operators
// of the code are checked (operators.h), and there is no need to: torch.jit.save writes values.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_LOADING_CHECK_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_LOADING_CHECK_H_

#include "absl/status/status.h"
#include "caffe2/serialize/inline_container.h"

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

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_LOADING_CHECK_H_
