// Causal self-attention and rotary positions, shared by the transformers.
#ifndef MUSTER_WORKER_MODELS_ATTENTION_H_
#define MUSTER_WORKER_MODELS_ATTENTION_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"

namespace muster::models {

// softmax(q k^T / sqrt(D)) v, for each position over the positions up to it, without dropout, by
// LibTorch's fused kernel. q [B, H, C, D], k and v [B, G, C, D] -> [B, H, C, D]. G divides H: H / G
// consecutive heads of q share one head of k and v (grouped-query attention, Ainslie et al. 2023).
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// The same for one position that comes after others: q [B, H, 1, D], k and v [B, G, S, D] of all
// positions so far, its own included, in any order -> [B, H, 1, D] of q's type. visible: bool
// [B, S]; where it is false, k and v have no influence if they are finite. Makes no copy of k and v
// for each head of q. Computes in float32, unless autocast says otherwise.
at::Tensor OneTokenAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& visible);

// Floating-point operations of both matrix products of one sample's attention, a multiply-add
// counted as 2, over all pairs of positions as in the literature (the causal kernel needs half of
// them). `width`: H * D.
double AttentionFlops(int64_t context, int64_t width);

// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: number i of a head's first
// half is rotated together with number i of its second half.
//
// The angles of all positions: constants that do not belong to a model's weights. They move to the
// device of what is turned. Threading: one thread at a time.
class Rotary {
 public:
  // `head`: the width of one head, which is even. Pair i is rotated by position / theta^(2i /
  // head).
  Rotary(int64_t context, int64_t head, double theta);

  // [B, C, H, head] -> the same shape, with the heads of each position rotated, computed in
  // float32. C <= context.
  at::Tensor Turn(const at::Tensor& x);

  // The same for tokens at these positions, int64 [B, C], each below the context.
  at::Tensor TurnAt(const at::Tensor& positions, const at::Tensor& x);

 private:
  void MoveTo(c10::Device device);

  // [context, 1, head], float32: the cosines, and the sines with the sign that they have in the
  // rotation.
  at::Tensor cosines_;
  at::Tensor sines_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_ATTENTION_H_
