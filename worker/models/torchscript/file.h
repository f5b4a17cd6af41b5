// Loads a TorchScript file. The tensors may stay without memory; their values are then read from
// the file when they are needed.
#ifndef MUSTER_WORKER_MODELS_TORCHSCRIPT_FILE_H_
#define MUSTER_WORKER_MODELS_TORCHSCRIPT_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "c10/core/Storage.h"
#include "common/files/mapped_file.h"
#include "torch/csrc/jit/api/module.h"

namespace muster::models {

// The places in a file of the storages of a module without memory.
//
// Reading throws ModelError if the file has shrunk since it was opened. The file stays mapped while
// this object lives. Threading: one thread.
class FileStorages {
 public:
  explicit FileStorages(std::shared_ptr<const files::MappedFile> file) : file_(std::move(file)) {}

  // Frees the memory of a storage that was read, if the file has the same bytes at `offset`.
  // Otherwise the storage keeps its memory.
  void Take(const c10::Storage& storage, uint64_t offset);

  bool Has(const at::Tensor& tensor) const;
  // Returns a function that reads the elements [begin, end), in the order of a contiguous tensor:
  // flat, in new memory. Requires Has(tensor).
  std::function<at::Tensor(int64_t begin, int64_t end)> Reader(const at::Tensor& tensor) const;
  // Reads the values of all storages except these, and gives them memory.
  void Settle(const std::set<const c10::StorageImpl*>& except);

 private:
  struct Place {
    c10::Storage storage;
    uint64_t offset;
  };
  std::shared_ptr<const files::MappedFile> file_;
  std::map<const c10::StorageImpl*, Place> places_;
};

struct LoadedFile {
  torch::jit::Module module;
  std::optional<FileStorages> storages;  // none: all tensors have memory
};

// Errors of both functions: those of opening the file; DATA_LOSS: cut off or damaged;
// INVALID_ARGUMENT: not a TorchScript file, a file that LibTorch cannot load, or code that would
// run while the file is loaded (checks.h).
absl::StatusOr<LoadedFile> LoadWhole(const std::string& path);
// Loads a file with at most one storage in memory at a time. Constants of the code have their
// values. Fails also for modules whose loading reads their tensors; LoadWhole may load these.
absl::StatusOr<LoadedFile> LoadWithoutMemory(const std::string& path);

// Returns one past the last element that the tensor reads, from the beginning of its storage.
int64_t EndOf(const at::Tensor& tensor);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_TORCHSCRIPT_FILE_H_
