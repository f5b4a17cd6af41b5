// Causal self-attention and rotary positions, shared by the transformers.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_ATTENTION_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_ATTENTION_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"

namespace muster::models {

// Returns softmax(q k^T / sqrt(D)) v, for each position over the positions up to it. There is no
// dropout; LibTorch's fused kernel computes the result.
// q [B, H, C, D], k and v [B, G, C, D] -> [B, H, C, D]. G divides H: H / G consecutive heads of q
// share one head of k and v (grouped-query attention, Ainslie et al. 2023).
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns the attention of one position that comes after others. Makes no copy of k and v for each
// head of q. Computes in float32, unless autocast says otherwise.
// - q [B, H, 1, D] -> [B, H, 1, D] of q's type.
// - k and v [B, G, S, D]: all positions so far and this position, in any order.
// - visible: bool [B, S]. At false, finite k and v have no influence.
at::Tensor OneTokenAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& visible);

// Returns the floating-point operations of both matrix products of one sample's attention; a
// multiply-add counts as 2. Counts all pairs of positions, as in the literature (the causal kernel
// needs half of them). `width`: H * D.
double AttentionFlops(int64_t context, int64_t width);

// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: number i of a head's first
// half is rotated together with number i of its second half.
//
// Holds the angles of all positions, which do not belong to a model's weights. The angles move to
// the device of the rotated tensor. Threading: one thread at a time.
class Rotary {
 public:
  // `head`: the width of one head; must be even. Pair i is rotated by position / theta^(2i / head).
  Rotary(int64_t context, int64_t head, double theta);

  // Rotates the heads of each position: [B, C, H, head] -> the same shape, in float32. C <=
  // context.
  at::Tensor Turn(const at::Tensor& x);

  // Rotates tokens at these positions, int64 [B, C], each below the context.
  at::Tensor TurnAt(const at::Tensor& positions, const at::Tensor& x);

 private:
  void MoveTo(c10::Device device);

  // [context, 1, head], float32: the cosines, and the sines with their sign in the rotation.
  at::Tensor cosines_;
  at::Tensor sines_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_ATTENTION_H_
