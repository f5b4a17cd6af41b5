#include "worker/models/llama.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "worker/models/language_model.h"
#include "worker/models/llama_units.h"

namespace muster::models {
namespace {

// Numbers in q and o, k and v, gate, up and down.
int64_t LayerMatrices(const LlamaShape& shape) {
  return 2 * shape.width * shape.width + 2 * shape.width * shape.kv_width() +
         3 * shape.width * shape.inner;
}

class Llama : public LanguageModel {
 public:
  Llama(const LlamaShape& shape, uint64_t seed)
      : LanguageModel("llama", MakeLlamaRoot(shape, seed),
                      {.vocab_size = shape.vocab_size,
                       .context = shape.context,
                       .layers = shape.layers,
                       .width = shape.width,
                       .layer_matrices = LayerMatrices(shape),
                       .kv_heads = shape.kv_heads,
                       .head = shape.head(),
                       .tied = shape.tied},
                      {.prefix = "model.",
                       .embedding = "model.embed_tokens.weight",
                       .constants = {"rotary_emb.inv_freq"}}),
        shape_(shape) {}

  // Hugging Face's layers register their two norms last.
  std::vector<std::string> SourceOrder() const override {
    std::vector<std::string> order;
    std::vector<std::string> norms;  // of the layer
    for (const auto& parameter : Parameters()) {
      if (absl::EndsWith(parameter.name, "layernorm.weight")) {
        norms.push_back(parameter.name);
        continue;
      }
      order.push_back(parameter.name);
      if (!absl::EndsWith(parameter.name, "down_proj.weight")) continue;
      order.insert(order.end(), norms.begin(), norms.end());
      norms.clear();
    }
    return order;
  }

  std::string HuggingFaceConfig() const override {
    const nlohmann::ordered_json config = {
        {"architectures", {"LlamaForCausalLM"}},
        {"model_type", "llama"},
        {"dtype", "float32"},
        {"vocab_size", shape_.vocab_size},
        {"max_position_embeddings", shape_.context},
        {"hidden_size", shape_.width},
        {"num_hidden_layers", shape_.layers},
        {"num_attention_heads", shape_.heads},
        {"num_key_value_heads", shape_.kv_heads},
        {"head_dim", shape_.head()},
        {"intermediate_size", shape_.inner},
        {"hidden_act", "silu"},
        {"rms_norm_eps", shape_.norm_eps},
        // For transformers before 5, and from 5 on.
        {"rope_theta", shape_.rope_theta},
        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", shape_.rope_theta}}},
        {"attention_bias", false},
        {"mlp_bias", false},
        {"attention_dropout", 0.0},
        {"initializer_range", kLlamaInitDeviation},
        {"tie_word_embeddings", shape_.tied},
        // Muster knows no special tokens; Llama's own may lie beyond a small vocabulary.
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"use_cache", true},
    };
    return config.dump(2) + "\n";
  }

 protected:
  std::vector<ConfigFact> ConfigFacts() const override {
    return {{"model_type", "llama"},
            {"hidden_act", "silu"},
            {"num_attention_heads", shape_.heads},
            {"num_key_value_heads", shape_.kv_heads},
            {"head_dim", shape_.head()},
            {"rms_norm_eps", shape_.norm_eps},
            {"rope_theta", shape_.rope_theta},
            // From transformers 5 on, and before.
            {"rope_parameters.rope_theta", shape_.rope_theta},
            {"rope_parameters.rope_type", "default"},
            {"rope_scaling.rope_type", "default"},
            {"rope_scaling.type", "default"}};
  }

 private:
  const LlamaShape shape_;
};

}  // namespace

std::unique_ptr<Model> CreateLlama(const v1::LlamaSpec& spec, uint64_t seed) {
  const LlamaShape shape = {.vocab_size = spec.vocab_size(),
                            .context = spec.context(),
                            .layers = spec.layers(),
                            .heads = spec.heads(),
                            .kv_heads = spec.kv_heads(),
                            .width = spec.width(),
                            .inner = spec.inner(),
                            .rope_theta = spec.rope_theta(),
                            .norm_eps = spec.norm_eps(),
                            .tied = spec.tied()};
  return std::make_unique<Llama>(shape, seed);
}

}  // namespace muster::models
