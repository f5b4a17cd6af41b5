// The operators that a model from a file may call: a TorchScript file, or an exported graph. They
// compute with tensors, numbers, texts, lists and dictionaries, or form control flow.
//
// The list names allowed operators, because LibTorch has harmful ones and libraries add more.
// Harmful operators access files (aten::save, aten::from_file), change the process
// (aten::manual_seed), call other processes (c10d::, prim::rpc_sync), or use unchecked sizes (for
// compressed sparse tensors). The operators of tensors are in common/operators/computing.h.
#ifndef MUSTER_WORKER_MODELS_ALLOWED_OPERATORS_H_
#define MUSTER_WORKER_MODELS_ALLOWED_OPERATORS_H_

#include "absl/strings/string_view.h"

namespace muster::models {

// name: with its namespace, without an overload: "aten::add_". The in-place form of an allowed
// operator is allowed, too. Thread-safe.
bool IsAllowedOperator(absl::string_view name);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_ALLOWED_OPERATORS_H_
