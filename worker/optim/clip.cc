#include "worker/optim/clip.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace muster::optim {
namespace {

// Sixteen running sums, one per lane of the widest vectors; they are added in order at the end, so the
// result depends on the values only.
double SumOfSquares(const at::Tensor& tensor) {
  const float* values = tensor.data_ptr<float>();
  const int64_t count = tensor.numel();
  constexpr int kLanes = 16;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) {
    const double value = values[i];
    sums[lane] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

float GradientNorm(const std::vector<at::Tensor>& gradients) {
  double total = 0;
  for (const at::Tensor& gradient : gradients) total += SumOfSquares(gradient);
  return static_cast<float>(std::sqrt(total));
}

float ClipGradientNorm(const std::vector<at::Tensor>& gradients, double max_norm) {
  const float norm = GradientNorm(gradients);
  if (!std::isfinite(norm)) return norm;
  const float scale = static_cast<float>(max_norm) / (norm + 1e-6f);
  if (scale < 1.0f && !gradients.empty()) {
    const c10::AutoGradMode no_gradients(false);
    at::_foreach_mul_(gradients, scale);
  }
  return norm;
}

}  // namespace muster::optim
