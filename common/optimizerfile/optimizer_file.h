// One file with the whole state of an optimizer, for Python: as torch.save writes
// optimizer.state_dict(), or as safetensors. Positions are known before any value is, so that all
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
  // {"state": {key: {slot: tensor}}, "param_groups": [...]}, which torch.load(weights_only=True)
  // reads and which load_state_dict of the optimizer of torch.optim with the same name takes. If
  // the groups are of different kinds, each has its kind besides: "optimizer": "sgd".
  kTorch,
  // An entry "slot/parameter" for each tensor. The metadata have the settings and the parameters,
  // as JSON, under "muster_optimizer".
  kSafetensors,
};

// What names a parameter in a torch file.
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
  // At most one of each slot and parameter; of parameters that were never trained there is none.
  std::vector<Item> items;
  // What the schedule makes of the learning rate in the next step.
  double schedule_factor = 1;
};

// Threading: const.
class OptimizerFile {
 public:
  // INVALID_ARGUMENT: a group or a parameter of an item does not exist, or the optimizer is of a
  // kind that is not known.
  static absl::StatusOr<OptimizerFile> Plan(const Contents& contents, Format format, Key key);

  uint64_t size() const { return size_; }
  // Where the elements of an item begin.
  uint64_t offset(size_t item) const { return offsets_[item]; }
  // All bytes that are no item's. `crcs`: zlib's CRC-32 of each item's bytes (kSafetensors does not
  // use them).
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
