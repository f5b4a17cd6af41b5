// The keys and values of the positions that a transformer has already computed (the "KV cache"), so
// that a further token costs one position and not the whole sequence again.
//
//   KeyValueCache cache(lengths_of_the_prompts, room, device);
//   const ForwardContext::Generating generating(&context, &cache);
//   logits = model.Logits(prompts, context);       // tokens [B, C]: the prompts
//   for (...) {
//     cache.Advance();
//     logits = model.Logits(tokens, context);      // tokens [B, 1]: one more of each row
//   }
//
// Rows have different lengths. The first forward takes the prompts, filled up at their ends to the
// longest one with any tokens of the vocabulary; what these tokens give is never seen by the
// attention of others (their weight is exactly 0), and is overwritten by the tokens that follow. So
// a row's result does not depend on the others, except that operations on more rows may add in
// another order.
//
// It lies outside of the model and its units, and the forwards are ordinary calls of units: a
// sharding strategy gathers their parameters around them, as always.
//
// Memory, on the device: KeyValueShape::BytesPerPosition() x rows x room, each layer's part from
// its first forward on, until the cache is destroyed. Contents are float32, whatever the units
// compute in; bfloat16 and float16 fit exactly.
// Threading and exceptions as in unit.h.
#ifndef MUSTER_WORKER_MODELS_KEY_VALUE_CACHE_H_
#define MUSTER_WORKER_MODELS_KEY_VALUE_CACHE_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "worker/models/unit.h"

namespace muster::models {

class KeyValueCache {
 public:
  // `lengths`: of each prompt, at least 1. `room`: for how many positions of a row there is memory,
  // at least those of the longest prompt.
  KeyValueCache(absl::Span<const int64_t> lengths, int64_t room, c10::Device device);

  // Called before each forward after the first one. The tokens of that forward are at the positions
  // after those of the one before. ModelError: there is no room.
  void Advance();

  // ---- For units.
  // Int64 [B, C]: where the tokens of this forward are in their rows, from 0.
  const at::Tensor& positions() const { return positions_; }

  // The attention of this layer (attention.h): q [B, H, C, D], k and v [B, G, C, D] of the tokens
  // of this forward -> [B, H, C, D]. Keeps k and v, and attends to all positions up to each token's
  // own. Called once in a forward for each layer.
  at::Tensor Attend(const Unit& layer, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v);

  // [B, C, W] -> [B, 1, W]: of the last token of each row, without what fills rows up.
  at::Tensor OfLastTokens(const at::Tensor& x) const;

 private:
  // Float32 [B, G, room, D]; zeros where nothing was written yet, because 0 times what happens to
  // be in memory may be not a number.
  struct Layer {
    at::Tensor keys;
    at::Tensor values;
  };

  const int64_t rows_;
  const int64_t room_;
  int64_t longest_;     // the positions of the longest row, with those of this forward
  bool first_ = true;   // the first forward
  at::Tensor lengths_;  // int64 [B, 1]: of the prompts
  at::Tensor positions_;
  at::Tensor visible_;  // bool [B, longest_], from the second forward on: what a row attends to
  std::unordered_map<const Unit*, Layer> layers_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_KEY_VALUE_CACHE_H_
