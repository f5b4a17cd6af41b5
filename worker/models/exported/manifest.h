// The manifest of an exported model (docs/reference/exported-format.md): what the model takes and
// gives, its units, and its tensors.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_MANIFEST_H_
#define MUSTER_WORKER_MODELS_EXPORTED_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "nlohmann/json.hpp"
#include "worker/models/exported/graph.h"

namespace muster::models::exported {

// A dimension of an input or of the output. No size: the number of samples, or a free length.
struct Dimension {
  std::optional<int64_t> size;
  bool is_batch = false;
};

struct TensorShape {
  std::string name;
  c10::ScalarType type = c10::ScalarType::Float;
  std::vector<Dimension> dimensions;
  // An input of whole numbers: each is in [0, below), if the exporter knows it.
  std::optional<int64_t> below;
};

// What a loss is the mean of.
struct LossTerms {
  std::optional<std::string> input;  // the input whose values are counted; absent: the samples
  int64_t first = 0;                 // 1: the model leaves out the first target of each sample
  int64_t ignored = 0;               // the value that does not count
};

struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;
  c10::ScalarType type = c10::ScalarType::Float;
  std::string unit;
  bool trainable = true;  // only of parameters
};

struct Manifest {
  std::vector<TensorShape> inputs;
  TensorShape output;
  bool returns_loss = false;
  LossTerms terms;                 // only of a loss
  // The precisions of jobs for which the graphs hold: "float32", "bfloat16", "float16".
  std::vector<std::string> precisions;
  std::vector<UnitTensors> units;  // the root first
  std::vector<StateTensor> parameters;
  std::vector<StateTensor> buffers;
  // The other names of tensors that several modules have.
  std::map<std::string, std::string> ties;
};

// Reads the contents of manifest.json. INVALID_ARGUMENT with the place, what was expected and what
// was found: another format, names that stand twice, tensors of unknown units or types.
absl::StatusOr<Manifest> ReadManifest(const nlohmann::json& file);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_MANIFEST_H_
