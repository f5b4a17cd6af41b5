// Causal self-attention, shared by the transformers.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_ATTENTION_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_ATTENTION_H_

#include <cstdint>
#include <optional>

#include "ATen/core/Tensor.h"

namespace muster::models {

// The positions that a position sees of those up to itself, as in Hugging Face's sliding_window:
// itself and the `window` - 1 positions before. Absent: all.
using Window = std::optional<int64_t>;

// Returns softmax(q k^T / sqrt(D)) v, for each position over the positions that it sees. There is
// no dropout; LibTorch's fused kernel computes the result.
// q [B, H, C, D], k and v [B, G, C, D] -> [B, H, C, D]. G divides H: H / G consecutive heads of q
// share one head of k and v (grouped-query attention, Ainslie et al. 2023).
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           Window window = std::nullopt);

// Returns the attention within documents that follow one another: each token sees the tokens of its
// own document up to itself. positions int64 [B, C]: of each token in its document; a document
// begins at each 0. On a CPU, each document is computed by itself, so that the cost is that of the
// documents. Otherwise by SeenInDocuments, so that the host does not wait for the positions.
at::Tensor DocumentAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& positions, Window window = std::nullopt);

// Returns which tokens (columns) each token (row) sees: bool [B, 1, C, C].
at::Tensor SeenInDocuments(const at::Tensor& positions, Window window = std::nullopt);

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

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_ATTENTION_H_
