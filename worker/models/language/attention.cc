#include "worker/models/language/attention.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "ATen/core/IListRef.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "ATen/ops/softmax.h"
#include "worker/device/host_values.h"

namespace muster::models {
namespace {

// Returns which positions (columns) each position (row) sees: bool [length, length].
at::Tensor Seen(int64_t length, int64_t window, c10::Device device) {
  const at::Tensor columns = at::arange(length, at::TensorOptions().device(device));
  const at::Tensor rows = columns.unsqueeze(1);
  const at::Tensor before = rows.ge(columns);
  return window >= length ? before : before.logical_and(rows.lt(columns.add(window)));
}

// Returns the lengths of the documents in a row. positions: int64 [C] on the CPU, contiguous.
std::vector<int64_t> LengthsOf(const at::Tensor& positions) {
  std::vector<int64_t> lengths;
  for (const int64_t position : device::HostValues<int64_t>(positions)) {
    if (lengths.empty() || position == 0) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

// Computes each document by itself.
at::Tensor AttentionOfEach(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& positions, Window window) {
  // unbind and split instead of select and narrow: their gradients are one concatenation.
  const std::vector<at::Tensor> qs = q.unbind(0), ks = k.unbind(0), vs = v.unbind(0);
  std::vector<at::Tensor> rows;
  for (size_t row = 0; row < qs.size(); ++row) {
    const std::vector<int64_t> lengths =
        LengthsOf(positions.select(0, static_cast<int64_t>(row)).contiguous());
    const auto parts = [&](const at::Tensor& x) {
      return x.unsqueeze(0).split_with_sizes(lengths, 2);
    };
    const std::vector<at::Tensor> q_parts = parts(qs[row]), k_parts = parts(ks[row]),
                                  v_parts = parts(vs[row]);
    std::vector<at::Tensor> mixed;
    for (size_t part = 0; part < lengths.size(); ++part) {
      mixed.push_back(CausalAttention(q_parts[part], k_parts[part], v_parts[part], window));
    }
    rows.push_back(at::cat(mixed, 2));
  }
  return at::cat(rows, 0);
}

}  // namespace

at::Tensor SeenInDocuments(const at::Tensor& positions, Window window) {
  const int64_t length = positions.size(1);
  // Tokens of one document have the same number.
  const at::Tensor numbers = positions.eq(0).cumsum(1);
  const at::Tensor same = numbers.unsqueeze(2).eq(numbers.unsqueeze(1));
  return same.logical_and(Seen(length, window.value_or(length), positions.device())).unsqueeze(1);
}

at::Tensor DocumentAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& positions, Window window) {
  if (positions.device().is_cpu()) return AttentionOfEach(q, k, v, positions, window);
  // The fused kernels with a mask do not take groups of queries.
  const int64_t group = q.size(1) / k.size(1);
  const auto whole = [&](const at::Tensor& x) {
    return group == 1 ? x : x.repeat_interleave(group, 1);
  };
  return at::scaled_dot_product_attention(q, whole(k), whole(v),
                                          SeenInDocuments(positions, window));
}

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
