// The units of GPT-2: the transformer with its head as root, and one unit per block.
#ifndef MUSTER_WORKER_MODELS_GPT2_UNITS_H_
#define MUSTER_WORKER_MODELS_GPT2_UNITS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "worker/models/unit.h"

namespace muster::models {

struct Gpt2Shape {
  int64_t vocab_size = 0;
  int64_t context = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t inner = 0;
  double dropout = 0;
  bool tied = false;
};

inline constexpr double kGpt2LayerNormEpsilon = 1e-5;
inline constexpr double kGpt2InitDeviation = 0.02;

// tokens int64 [B, C], C <= context -> logits float32 [B, C, vocab_size]. In a generation
// (key_value_cache.h) [B, 1, vocab_size]: of the last token of each row.
std::unique_ptr<Unit> MakeGpt2Root(const Gpt2Shape& shape, uint64_t seed);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_GPT2_UNITS_H_
