// The operators that the code of a TorchScript file may call: those that compute with tensors,
// numbers, texts, lists and dictionaries, and what control flow is made of.
//
// LibTorch has others, which read and write files (aten::save, aten::from_file), change the process
// (aten::manual_seed), call other processes (c10d::, prim::rpc_sync), or trust sizes that they do
// not check (those for compressed sparse tensors). Libraries add more. So this is a list of what is
// allowed, and an operator of a newer LibTorch has to be added here.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_ALLOWED_OPERATORS_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_ALLOWED_OPERATORS_H_

#include "absl/strings/string_view.h"

namespace muster::models {

// name: with its namespace, without an overload: "aten::add_". What is allowed is so in place, too.
// Thread-safe.
bool IsAllowedOperator(absl::string_view name);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_ALLOWED_OPERATORS_H_
