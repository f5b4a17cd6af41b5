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

// A dimension of an input or of the output. No size: the number of samples, or the free length of
// sequences, which is the same in all inputs.
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

// The free length of sequences.
struct SequenceLength {
  int64_t example = 0;  // the length in the example of the export
  int64_t least = 1;
  std::optional<int64_t> most;
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
  LossTerms terms;  // only of a loss
  // Logits [batch, context, vocabulary]: those of a token do not depend on later tokens.
  std::optional<bool> causal;  // absent: not known
  // Present if a dimension has a free length.
  std::optional<SequenceLength> sequence;
  // The precisions of jobs for which the graphs hold: "float32", "bfloat16", "float16".
  std::vector<std::string> precisions;
  std::vector<UnitTensors> units;  // the root first
  std::vector<StateTensor> parameters;
  std::vector<StateTensor> buffers;
  // The other names of tensors that several modules have.
  std::map<std::string, std::string> ties;
};

// Returns whether a dimension has a free length.
bool HasFreeLength(const TensorShape& shape);

// Reads the contents of manifest.json. INVALID_ARGUMENT with the place, what was expected and what
// was found: another format, names that stand twice, tensors of unknown units or types.
absl::StatusOr<Manifest> ReadManifest(const nlohmann::json& file);

// Gives the free dimensions the length `context`. 0: the length in the example. INVALID_ARGUMENT:
// the length is outside of the model's range, or the model's length is not free.
absl::Status SetContext(int64_t context, Manifest* manifest);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_MANIFEST_H_
