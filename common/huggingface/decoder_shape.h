// The sizes and options of a decoder: what config.json of Llama, Mistral, Qwen 2 and 3 and SmolLM
// says about the computation.
#ifndef MUSTER_COMMON_HUGGINGFACE_DECODER_SHAPE_H_
#define MUSTER_COMMON_HUGGINGFACE_DECODER_SHAPE_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace muster::huggingface {

// Divides all frequencies by `factor` ("linear" in Hugging Face).
struct LinearScaling {
  double factor = 1;
};

// Divides low frequencies by `factor`, keeps high frequencies, and goes over smoothly between them
// ("llama3" in Hugging Face). A frequency is low if a full turn takes more than original_context /
// low_frequency positions, and high if a full turn takes less than original_context /
// high_frequency positions.
struct Llama3Scaling {
  double factor = 1;
  double low_frequency = 1;
  double high_frequency = 4;
  double original_context = 0;
};

// The frequencies of rotary position embedding.
struct RotaryFrequencies {
  // Without scaling, pair i is rotated by position / theta^(2i / head).
  double theta = 10000;
  std::variant<std::monostate, LinearScaling, Llama3Scaling> scaling;
};

struct DecoderLayer {
  // The number of positions that a position sees, itself included; absent: all before it.
  std::optional<int64_t> window;
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

}  // namespace muster::huggingface

#endif  // MUSTER_COMMON_HUGGINGFACE_DECODER_SHAPE_H_
