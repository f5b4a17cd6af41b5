#include "worker/models/attention.h"

#include <optional>

#include "ATen/ops/scaled_dot_product_attention.h"

namespace muster::models {

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const bool grouped = q.size(1) != k.size(1);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, std::nullopt,
                                          /*enable_gqa=*/grouped);
}

double AttentionFlops(int64_t context, int64_t width) {
  return 2 * 2.0 * static_cast<double>(context) * static_cast<double>(context) *
         static_cast<double>(width);
}

}  // namespace muster::models
