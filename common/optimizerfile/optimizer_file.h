// One file with the whole state of an optimizer, for Python: in the form of torch.save for
// optimizer.state_dict(), or as safetensors. Positions are known before any value, so that all
// ranks can write their parts at the same time. Pure.
#ifndef MUSTER_COMMON_OPTIMIZERFILE_OPTIMIZER_FILE_H_
#define MUSTER_COMMON_OPTIMIZERFILE_OPTIMIZER_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/torchfile/torch_file.h"

namespace muster::optimizerfile {

enum class Format {
  // {"state": {key: {slot: tensor}}, "param_groups": [...]}. torch.load(weights_only=True) reads
  // the file, and load_state_dict of the torch.optim optimizer with the same name accepts the
  // result. Groups of different kinds also have their kind: "optimizer": "sgd".
  kTorch,
  // An entry "slot/parameter" for each tensor. The metadata have the settings and the parameters,
  // as JSON, under "muster_optimizer".
  kSafetensors,
};

// The key of a parameter in a torch file.
enum class Key {
  kIndex,  // its position in Contents::parameters, as in the state of a torch.optim optimizer
  kName,   // as FSDP's consolidated form
};

// One tensor of the state: float32; a scalar has the shape [].
struct Item {
  std::string slot;  // "exp_avg"
  std::string parameter;
  std::vector<int64_t> shape;
};

struct Contents {
  manifest::OptimizerRecord optimizer;
  std::vector<manifest::ParameterRecord> parameters;
  // At most one item of each slot and parameter. Parameters that were never trained have none.
  std::vector<Item> items;
  // The factor of the schedule for the learning rate in the next step.
  double schedule_factor = 1;
};

// Threading: const.
class OptimizerFile {
 public:
  // INVALID_ARGUMENT: a group or a parameter of an item does not exist, or the optimizer is of an
  // unknown kind.
  static absl::StatusOr<OptimizerFile> Plan(const Contents& contents, Format format, Key key);

  uint64_t size() const { return size_; }
  // The position of an item's elements in the file.
  uint64_t offset(size_t item) const { return offsets_[item]; }
  // All bytes that do not belong to an item. `crcs`: zlib's CRC-32 of each item's bytes
  // (kSafetensors does not use them).
  std::vector<torchfile::Fragment> Fragments(const std::vector<uint32_t>& crcs) const;

 private:
  OptimizerFile() = default;

  std::vector<torchfile::TorchFile> torch_;  // one with kTorch
  std::string header_;                       // with kSafetensors
  std::vector<uint64_t> offsets_;
  uint64_t size_ = 0;
};

}  // namespace muster::optimizerfile

#endif  // MUSTER_COMMON_OPTIMIZERFILE_OPTIMIZER_FILE_H_
