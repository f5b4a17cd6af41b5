// Reads the state of an optimizer from a file of torch.save(optimizer.state_dict()), or from
// Muster's own (optimizer_file.h). The file may be hostile; nothing in it is executed.
#ifndef MUSTER_COMMON_OPTIMIZERFILE_OPTIMIZER_SOURCE_H_
#define MUSTER_COMMON_OPTIMIZERFILE_OPTIMIZER_SOURCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/safetensors/safetensors.h"
#include "common/torchfile/torch_archive.h"

namespace muster::optimizerfile {

// A tensor in the file: all elements, in order.
struct StoredValues {
  safetensors::DType dtype = safetensors::DType::kF32;
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;  // may be unaligned; valid as long as the source
};

// The file is mapped. Movable. Threading: const.
class OptimizerSource {
 public:
  // A value of the state. Some PyTorch versions store a step as a number.
  using Value = std::variant<StoredValues, double>;

  // Reads a file whose name ends in .safetensors as Muster's, and any other as a torch file.
  // `optimizer` and `parameters`: those of the job, as in a manifest.
  //
  // The names of the parameters in a torch file are in `param_names`, or are keys that are texts.
  // Without names, the `params` of the only group stand for all parameters of the job, in their
  // order. With as many groups as in the job, a group's `params` stand for the parameters of the
  // job's group with the same number.
  //
  // Errors begin with the path. INVALID_ARGUMENT: not such a torch file, or its parameters cannot
  // be assigned. DATA_LOSS: not a complete safetensors file. Other errors: those of files.
  static absl::StatusOr<OptimizerSource> Open(
      const std::string& path, const manifest::OptimizerRecord& optimizer,
      const std::vector<manifest::ParameterRecord>& parameters);

  // The values by parameter and slot, also those that the job does not have.
  const std::map<std::string, std::map<std::string, Value>>& state() const { return state_; }

  // The settings in which the file differs from the job, each as a sentence.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  OptimizerSource() = default;
  friend class TorchReader;
  friend class SafetensorsReader;

  std::vector<torchfile::TorchArchive> archive_;  // the file, of either kind
  std::vector<safetensors::File> safetensors_;
  std::map<std::string, std::map<std::string, Value>> state_;
  std::vector<std::string> differences_;
};

}  // namespace muster::optimizerfile

#endif  // MUSTER_COMMON_OPTIMIZERFILE_OPTIMIZER_SOURCE_H_
