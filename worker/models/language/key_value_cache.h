// The keys and values of positions that a transformer has already computed (the "KV cache"). With
// the cache, a further token costs the computation of one position instead of the whole sequence.
//
//   KeyValueCache cache(lengths_of_the_prompts, room, device);
//   const ForwardContext::Generating generating(&context, &cache);
//   logits = model.Logits(prompts, context);       // tokens [B, C]: the prompts
//   for (...) {
//     cache.Advance();
//     logits = model.Logits(tokens, context);      // tokens [B, 1]: one more of each row
//   }
//
// Rows have different lengths. The first forward takes the prompts, each filled up at its end to
// the longest prompt, with any tokens of the vocabulary. The attention of other tokens never sees
// these fillers (their weight is exactly 0), and the tokens that follow overwrite them. So a row's
// result does not depend on other rows, except that operations on more rows may add in another
// order.
//
// The cache lies outside of the model and its units. The forwards are ordinary calls of units, so a
// sharding strategy gathers parameters around them as in training.
//
// Memory, on the device: KeyValueShape::BytesPerPosition() x rows x room. Each layer allocates its
// part in its first forward and keeps the memory until the cache is destroyed. Contents are always
// float32, which represents bfloat16 and float16 exactly.
// Threading and exceptions: see unit.h.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_KEY_VALUE_CACHE_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_KEY_VALUE_CACHE_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "worker/models/language/attention.h"
#include "worker/models/unit.h"

namespace muster::models {

class KeyValueCache {
 public:
  // `lengths`: of each prompt, at least 1. `room`: the number of positions of a row that have
  // memory, at least the length of the longest prompt.
  KeyValueCache(absl::Span<const int64_t> lengths, int64_t room, c10::Device device);

  // Moves to the positions of the next forward; called before each forward except the first. The
  // tokens of that forward follow the tokens of the forward before. ModelError if there is no room.
  void Advance();

  // ---- For units.
  // The position of each token of this forward in its row, from 0: int64 [B, C].
  const at::Tensor& positions() const { return positions_; }

  // Computes the attention of this layer (attention.h) over the positions that each token sees. q
  // [B, H, C, D], k and v [B, G, C, D] of the tokens of this forward -> [B, H, C, D]. Keeps k and
  // v. Must be called once in a forward for each layer, always with the same window.
  at::Tensor Attend(const Unit& layer, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v, Window window = std::nullopt);

  // Returns the last token of each row, without fillers: [B, C, W] -> [B, 1, W].
  at::Tensor OfLastTokens(const at::Tensor& x) const;

 private:
  // Float32 [B, G, room, D]. Places without a position are zero: 0 times an arbitrary content of
  // memory may be NaN.
  struct Layer {
    at::Tensor keys;
    at::Tensor values;
  };

  const int64_t rows_;
  const int64_t room_;
  int64_t longest_;     // positions of the longest row, with those of this forward
  bool first_ = true;   // whether this is the first forward
  at::Tensor lengths_;  // int64 [B, 1]: of the prompts
  at::Tensor positions_;
  at::Tensor visible_;  // bool [B, longest_], from the second forward on: what a row sees
  std::unordered_map<const Unit*, Layer> layers_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_KEY_VALUE_CACHE_H_
