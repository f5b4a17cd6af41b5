#include "worker/models/gpt2.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/models/attention.h"
#include "worker/models/gpt2_units.h"
#include "worker/models/options.h"

namespace muster::models {
namespace {

class Gpt2 : public Model {
 public:
  Gpt2(const Gpt2Shape& shape, uint64_t seed)
      : Model("gpt2", MakeGpt2Root(shape, seed)), shape_(shape) {
    for (const Parameter& parameter : Parameters()) names_.insert(parameter.name);
  }

  InputSpec UnitsInput() const override {
    return {.kind = InputSpec::Kind::kTokens,
            .vocab_size = shape_.vocab_size,
            .context = shape_.context};
  }

  double ForwardFlops() const override {
    const auto context = static_cast<double>(shape_.context);
    const auto width = static_cast<double>(shape_.width);
    // Numbers in the matrices of one block: c_attn, attn.c_proj, c_fc and mlp.c_proj.
    const double matrices = 4 * width * width + 2 * width * static_cast<double>(shape_.inner);
    const double block = 2 * context * matrices + AttentionFlops(shape_.context, shape_.width);
    const double head = 2 * context * width * static_cast<double>(shape_.vocab_size);
    return static_cast<double>(shape_.layers) * block + head;
  }

  // Files of the bare GPT2Model have no "transformer." in front; old files carry the causal masks;
  // files of tied models may hold the shared weight under either name, or both.
  WeightName ResolveWeight(const std::string& name) const override {
    if (names_.count(name) > 0) return {WeightName::Kind::kParameter, name};
    const std::string full = "transformer." + name;
    if (names_.count(full) > 0) return {WeightName::Kind::kParameter, full};
    if (shape_.tied && name == "lm_head.weight") {
      return {WeightName::Kind::kParameter, "transformer.wte.weight"};
    }
    if (absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias")) {
      return {WeightName::Kind::kIgnored, ""};
    }
    return {};
  }

  std::string HuggingFaceConfig() const override {
    const nlohmann::ordered_json config = {
        {"architectures", {"GPT2LMHeadModel"}},
        {"model_type", "gpt2"},
        {"dtype", "float32"},
        {"vocab_size", shape_.vocab_size},
        {"n_positions", shape_.context},
        {"n_embd", shape_.width},
        {"n_layer", shape_.layers},
        {"n_head", shape_.heads},
        {"n_inner", shape_.inner},
        {"activation_function", "gelu_new"},
        {"resid_pdrop", shape_.dropout},
        {"embd_pdrop", shape_.dropout},
        {"attn_pdrop", shape_.dropout},
        {"layer_norm_epsilon", kGpt2LayerNormEpsilon},
        {"initializer_range", kGpt2InitDeviation},
        {"scale_attn_weights", true},
        {"tie_word_embeddings", shape_.tied},
        // Muster knows no special tokens; GPT-2's own would lie beyond a small vocabulary.
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"use_cache", true},
    };
    return config.dump(2) + "\n";
  }

 private:
  const Gpt2Shape shape_;
  std::set<std::string> names_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateGpt2(const nlohmann::json& options, uint64_t seed) {
  OptionReader reader("gpt2", options);
  Gpt2Shape shape;
  shape.vocab_size = reader.Size("vocab_size");
  shape.context = reader.Size("context");
  shape.layers = reader.Size("layers");
  shape.heads = reader.Size("heads");
  shape.width = reader.Size("width");
  shape.inner = reader.Size("inner", 4 * shape.width);
  shape.dropout = reader.Probability("dropout", 0);
  shape.tied = reader.Flag("tied", true);
  if (reader.ok() && shape.width % shape.heads != 0) {
    reader.Problem(absl::StrCat("width: expected a multiple of heads (", shape.heads, "), found ",
                                shape.width));
  }
  RETURN_IF_ERROR(reader.Finish());
  return std::make_unique<Gpt2>(shape, seed);
}

}  // namespace muster::models
