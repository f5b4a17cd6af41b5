#include "worker/models/language/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "ATen/ops/arange.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/softmax.h"

namespace muster::models {
namespace {

// Returns which positions (columns) each position (row) sees: bool [length, length].
at::Tensor Seen(int64_t length, int64_t window, c10::Device device) {
  const at::Tensor positions = at::arange(length, at::TensorOptions().device(device));
  const at::Tensor back = positions.unsqueeze(1).sub(positions);
  return back.ge(0).logical_and(back.lt(window));
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           Window window) {
  const bool grouped = q.size(1) != k.size(1);
  const int64_t length = q.size(2);
  if (!window.has_value() || length <= *window) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, std::nullopt,
                                            /*enable_gqa=*/grouped);
  }
  return at::scaled_dot_product_attention(q, k, v, Seen(length, *window, q.device()), 0.0,
                                          /*is_causal=*/false, std::nullopt,
                                          /*enable_gqa=*/grouped);
}

at::Tensor OneTokenAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& visible) {
  const int64_t batch = q.size(0), heads = q.size(1), shared = k.size(1), width = q.size(3);
  // [B, G, H / G, D]: the heads of q with the same head of k and v are the rows of a product.
  const at::Tensor grouped = q.reshape({batch, shared, heads / shared, width}).to(at::kFloat);
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const at::Tensor scores =
      at::matmul(grouped.mul(scale), k.transpose(2, 3))
          .masked_fill(visible.logical_not().view({batch, 1, 1, visible.size(1)}),
                       -std::numeric_limits<float>::infinity());
  return at::matmul(at::softmax(scores, -1), v).reshape(q.sizes()).to(q.scalar_type());
}

double AttentionFlops(int64_t context, int64_t width) {
  return 2 * 2.0 * static_cast<double>(context) * static_cast<double>(context) *
         static_cast<double>(width);
}

}  // namespace muster::models
