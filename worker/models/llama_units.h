// The units of Llama: the transformer with its head as root, and one unit per layer.
#ifndef MUSTER_WORKER_MODELS_LLAMA_UNITS_H_
#define MUSTER_WORKER_MODELS_LLAMA_UNITS_H_

#include <cstdint>
#include <memory>

#include "worker/models/unit.h"

namespace muster::models {

struct LlamaShape {
  int64_t vocab_size = 0;
  int64_t context = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t width = 0;
  int64_t inner = 0;
  double rope_theta = 0;
  double norm_eps = 0;
  bool tied = false;

  int64_t head() const { return width / heads; }
  int64_t kv_width() const { return kv_heads * head(); }
};

inline constexpr double kLlamaInitDeviation = 0.02;

// tokens int64 [B, C], C <= context -> logits [B, C, vocab_size]. float32, unless autocast says
// otherwise. In a generation (key_value_cache.h) [B, 1, vocab_size]: of the last token of each row.
std::unique_ptr<Unit> MakeLlamaRoot(const LlamaShape& shape, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LLAMA_UNITS_H_
