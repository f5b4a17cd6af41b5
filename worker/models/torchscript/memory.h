// Whether a TorchScript file contains all numbers of the tensors that were loaded from it. LibTorch
// reads a record into memory of the record's own size and takes the storage's size from the file's
// pickle: if a record was cut off, the tensor would be read beyond the end of its memory.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_MEMORY_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_MEMORY_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"

namespace muster::models {

// `tensors`: the tensors of the file at `path`. Call it before any of them is read. DATA_LOSS: a
// record is too short.
absl::Status CheckMemory(const std::string& path, const std::vector<at::Tensor>& tensors);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_MEMORY_H_
