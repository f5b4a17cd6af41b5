#include "worker/models/language/attention.h"

#include <cmath>
#include <limits>
#include <optional>

#include "ATen/core/IListRef.h"
#include "ATen/ops/addcmul.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/pow.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/softmax.h"

namespace muster::models {
namespace {

at::Tensor Turned(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  // A roll by half a head puts each number at the place of its partner.
  return at::addcmul(x.mul(cosines), x.roll(x.size(3) / 2, 3), sines).to(x.scalar_type());
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const bool grouped = q.size(1) != k.size(1);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, std::nullopt,
                                          /*enable_gqa=*/grouped);
}

at::Tensor OneTokenAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& visible) {
  const int64_t batch = q.size(0), heads = q.size(1), shared = k.size(1), width = q.size(3);
  // [B, G, H / G, D]: heads that share one head of k and v are the rows of one product.
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

Rotary::Rotary(int64_t context, int64_t head, double theta) {
  // float32, as in transformers: float64 would give other angles at distant positions.
  const at::Tensor exponents = at::arange(0, head, 2, at::kFloat).div(head);
  const at::Tensor frequencies = at::pow(theta, exponents).reciprocal();
  const at::Tensor angles = at::arange(context, at::kFloat).unsqueeze(1).mul(frequencies);
  const at::Tensor sines = angles.sin();
  cosines_ = at::cat({angles.cos(), angles.cos()}, 1).unsqueeze(1);
  sines_ = at::cat({sines.neg(), sines}, 1).unsqueeze(1);
}

at::Tensor Rotary::Turn(const at::Tensor& x) {
  MoveTo(x.device());
  const int64_t length = x.size(1);
  return Turned(x, cosines_.narrow(0, 0, length), sines_.narrow(0, 0, length));
}

at::Tensor Rotary::TurnAt(const at::Tensor& positions, const at::Tensor& x) {
  MoveTo(x.device());
  const auto at_positions = [&](const at::Tensor& table) {
    return table.index_select(0, positions.flatten())
        .view({positions.size(0), positions.size(1), 1, x.size(3)});
  };
  return Turned(x, at_positions(cosines_), at_positions(sines_));
}

void Rotary::MoveTo(c10::Device device) {
  cosines_ = cosines_.to(device);
  sines_ = sines_.to(device);
}

}  // namespace muster::models
