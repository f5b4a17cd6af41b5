// Causal self-attention, shared by the transformers.
#ifndef MUSTER_WORKER_MODELS_ATTENTION_H_
#define MUSTER_WORKER_MODELS_ATTENTION_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

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

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_ATTENTION_H_
