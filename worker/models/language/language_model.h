// The code that causal language models as in transformers share, besides their layers. The input is
// tokens, all layers have the same shape, and weights files and config.json are those of Hugging
// Face.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_LANGUAGE_MODEL_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_LANGUAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "nlohmann/json.hpp"
#include "worker/models/model.h"
#include "worker/models/unit.h"

namespace muster::models {

struct LanguageModelShape {
  int64_t vocab_size = 0;
  int64_t context = 0;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t queries = 0;         // the widths of all heads of queries together
  int64_t layer_matrices = 0;  // numbers in the matrices of one layer
  int64_t kv_heads = 0;        // heads of keys and values
  int64_t head = 0;            // the width of a head
  bool tied = false;
};

// Names in weights files.
struct LanguageModelNames {
  // The prefix of names, which is missing in files of the model without its head.
  std::string prefix;
  // The name of the token embedding. Tied embeddings are the same tensor as `lm_head.weight`; a
  // file may then contain either name, or both.
  std::string embedding;
  // The endings of the names of constants in old files.
  std::vector<std::string> constants;
  // The parameter with one row for each position, if there is one. A file of a model with more
  // positions has more rows.
  std::string positions;
};

// A key of config.json ("a.b": b within a), and the value that the key must have if present.
using ConfigFact = std::pair<std::string, nlohmann::json>;

// What a model is for people and for transformers.
struct ModelIdentity {
  std::string kind;  // as in the job file
  // The name in errors; empty: "model KIND".
  std::string name;
  // The text of the config.json with which transformers opens the weights.
  std::string config;
  // The properties of the model that its weights do not show.
  std::vector<ConfigFact> facts;
  // The hash of the file that describes the model; "" if there is none.
  std::string hash;
};

class LanguageModel : public Model {
 public:
  std::string name() const override;
  std::string HuggingFaceConfig() const override { return identity_.config; }
  std::string file_hash() const override { return identity_.hash; }
  double ForwardFlops() const override;
  std::optional<Continuation> continuation() const override;
  WeightName ResolveWeight(const std::string& name) const override;
  absl::Status CheckHuggingFaceConfig(const std::string& text) const override;

 protected:
  LanguageModel(ModelIdentity identity, std::unique_ptr<Unit> root, const LanguageModelShape& shape,
                LanguageModelNames names);

  InputSpec UnitsInput() const override;

  // Returns whether the model has a parameter of this name.
  bool Has(const std::string& parameter) const { return parameters_.count(parameter) > 0; }

 private:
  const ModelIdentity identity_;
  const LanguageModelShape shape_;
  const LanguageModelNames names_;
  std::set<std::string> parameters_;
};

// A unit with one row for each token of the vocabulary: an embedding, a head, or both (tied). A
// tied unit is called twice in a forward. Its only parameter is NAME.weight, [vocabulary, width].
class Vocabulary : public Unit {
 public:
  // padding: the token whose embedding gets no gradient as an input.
  Vocabulary(const std::string& name, int64_t tokens, int64_t width, double deviation,
             uint64_t seed, std::optional<int64_t> padding = std::nullopt);

  // tokens int64 [B, C] -> their embeddings [B, C, width]; numbers [B, C, width] -> logits [B, C,
  // vocabulary].
  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override;

  // False for tokens: the gradient of an embedding does not depend on the embedding's values.
  bool BackwardReadsParameters(const Tensors& inputs) const override;

 private:
  const std::optional<int64_t> padding_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_LANGUAGE_MODEL_H_
