// The decoder that Llama (Touvron et al. 2023), Mistral, Qwen 2 and 3 and SmolLM share: rotary
// positions, root mean square norms, SwiGLU, grouped-query attention. Names and layouts are those
// of Hugging Face's LlamaForCausalLM; q_norm and k_norm are those of Qwen3ForCausalLM.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_DECODER_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_DECODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/models/language/attention.h"
#include "worker/models/language/language_model.h"
#include "worker/models/language/rotary.h"
#include "worker/models/model.h"

namespace muster::models {

struct DecoderLayer {
  Window window;       // what a position sees
  bool rotary = true;  // false: attention does not depend on the positions
};

struct DecoderShape {
  int64_t vocab_size = 0;
  int64_t context = 0;  // tokens of a sample
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head = 0;      // the width of a head; even
  int64_t width = 0;
  int64_t inner = 0;
  double norm_eps = 0;
  RotaryFrequencies rotary;
  bool tied = false;
  bool qkv_bias = false;  // of q_proj, k_proj and v_proj
  bool o_bias = false;    // of o_proj
  bool mlp_bias = false;
  bool qk_norm = false;  // norms of the heads of queries and keys
  // The token whose embedding gets no gradient as an input (Hugging Face's pad_token_id).
  std::optional<int64_t> padding;
  double deviation = 0.02;  // of initial values
  std::vector<DecoderLayer> layers;
};

// Makes a decoder with initial values, which depend only on (seed, parameter name).
// tokens int64 [B, C], C <= context -> logits [B, C, vocab_size]. float32, unless autocast says
// otherwise. In a generation (key_value_cache.h) [B, 1, vocab_size]: of each row's last token.
std::unique_ptr<Model> CreateDecoder(const DecoderShape& shape, ModelIdentity identity,
                                     uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_DECODER_H_
