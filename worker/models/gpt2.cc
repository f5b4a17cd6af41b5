#include "worker/models/gpt2.h"

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/models/gpt2_units.h"
#include "worker/models/language_model.h"

namespace muster::models {
namespace {

// Numbers in c_attn, attn.c_proj, c_fc and mlp.c_proj.
int64_t LayerMatrices(const Gpt2Shape& shape) {
  return 4 * shape.width * shape.width + 2 * shape.width * shape.inner;
}

class Gpt2 : public LanguageModel {
 public:
  Gpt2(const Gpt2Shape& shape, uint64_t seed)
      : LanguageModel("gpt2", MakeGpt2Root(shape, seed),
                      {.vocab_size = shape.vocab_size,
                       .context = shape.context,
                       .layers = shape.layers,
                       .width = shape.width,
                       .layer_matrices = LayerMatrices(shape),
                       .kv_heads = shape.heads,
                       .head = shape.width / shape.heads,
                       .tied = shape.tied},
                      // The constants are the causal masks.
                      {.prefix = "transformer.",
                       .embedding = "transformer.wte.weight",
                       .constants = {".attn.bias", ".attn.masked_bias"}}),
        shape_(shape) {}

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

 protected:
  std::vector<ConfigFact> ConfigFacts() const override {
    return {{"model_type", "gpt2"},
            {"n_head", shape_.heads},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", kGpt2LayerNormEpsilon},
            {"scale_attn_weights", true},
            {"scale_attn_by_inverse_layer_idx", false}};
  }

 private:
  const Gpt2Shape shape_;
};

}  // namespace

std::unique_ptr<Model> CreateGpt2(const v1::Gpt2Spec& spec, uint64_t seed) {
  const Gpt2Shape shape = {.vocab_size = spec.vocab_size(),
                           .context = spec.context(),
                           .layers = spec.layers(),
                           .heads = spec.heads(),
                           .width = spec.width(),
                           .inner = spec.inner(),
                           .dropout = spec.dropout(),
                           .tied = spec.tied()};
  return std::make_unique<Gpt2>(shape, seed);
}

}  // namespace muster::models
