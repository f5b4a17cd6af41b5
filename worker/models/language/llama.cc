// Llama from options in the job file, without biases, dropout and scaled rotary positions, with the
// initialisation of Hugging Face's LlamaForCausalLM.
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/models/built_in.h"
#include "worker/models/language/decoder.h"
#include "worker/models/language/language_model.h"

namespace muster::models {
namespace {

std::string ConfigOf(const v1::LlamaSpec& spec, const DecoderShape& shape) {
  const nlohmann::ordered_json config = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"dtype", "float32"},
      {"vocab_size", shape.vocab_size},
      {"max_position_embeddings", shape.context},
      {"hidden_size", shape.width},
      {"num_hidden_layers", spec.layers()},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head},
      {"intermediate_size", shape.inner},
      {"hidden_act", "silu"},
      {"rms_norm_eps", shape.norm_eps},
      // The first key is for transformers before 5, the second for 5 and later.
      {"rope_theta", spec.rope_theta()},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", spec.rope_theta()}}},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"attention_dropout", 0.0},
      {"initializer_range", shape.deviation},
      {"tie_word_embeddings", shape.tied},
      // Muster knows no special tokens. Those of Llama may lie beyond a small vocabulary.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"use_cache", true},
  };
  return config.dump(2) + "\n";
}

std::vector<ConfigFact> FactsOf(const DecoderShape& shape) {
  const double theta = shape.rotary.theta;
  return {{"model_type", "llama"},
          {"hidden_act", "silu"},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head},
          {"rms_norm_eps", shape.norm_eps},
          {"rope_theta", theta},
          // rope_parameters is of transformers 5 and later, rope_scaling of earlier versions.
          {"rope_parameters.rope_theta", theta},
          {"rope_parameters.rope_type", "default"},
          {"rope_scaling.rope_type", "default"},
          {"rope_scaling.type", "default"}};
}

}  // namespace

std::unique_ptr<Model> CreateLlama(const v1::LlamaSpec& spec, uint64_t seed) {
  const DecoderShape shape = {.vocab_size = spec.vocab_size(),
                              .context = spec.context(),
                              .heads = spec.heads(),
                              .kv_heads = spec.kv_heads(),
                              .head = spec.width() / spec.heads(),
                              .width = spec.width(),
                              .inner = spec.inner(),
                              .norm_eps = spec.norm_eps(),
                              .rotary = {.theta = spec.rope_theta()},
                              .tied = spec.tied(),
                              .layers = std::vector<huggingface::DecoderLayer>(spec.layers())};
  return CreateDecoder(
      shape, {.kind = "llama", .config = ConfigOf(spec, shape), .facts = FactsOf(shape)}, seed);
}

}  // namespace muster::models
