#include "worker/optim/clip.h"

#include <cmath>
#include <cstdint>

#include "ATen/ops/_foreach_mul.h"
#include "ATen/ops/_foreach_norm.h"
#include "ATen/ops/add.h"
#include "ATen/ops/clamp_max.h"
#include "ATen/ops/mul.h"
#include "ATen/ops/reciprocal.h"
#include "ATen/ops/square.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/zeros.h"
#include "absl/types/span.h"
#include "c10/core/GradMode.h"
#include "worker/device/host_values.h"

namespace muster::optim {
namespace {

// Adds `value` to the sum. The rounding error of the addition goes to `low` (Knuth's TwoSum).
inline void Add(double value, double& high, double& low) {
  const double sum = high + value;
  const double added = sum - high;
  low += (high - (sum - added)) + (value - added);
  high = sum;
}

// The number of elements whose squares are added in plain float64. This takes a quarter of the time
// of two doubles for each element. Blocks count from a tensor's beginning, so tensors that are cut
// at multiples of this size have the same blocks.
constexpr int kBlock = 16;

template <typename T>
inline double BlockSum(const T* values) {
  double sums[kBlock / 2];
  for (int lane = 0; lane < kBlock / 2; ++lane) {
    const double a = values[lane], b = values[lane + kBlock / 2];
    sums[lane] = a * a + b * b;
  }
  for (int width = kBlock / 4; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

template <typename T>
void AddSquares(absl::Span<const T> numbers, SquareSum* total) {
  const T* const values = numbers.data();
  const auto count = static_cast<int64_t>(numbers.size());
  double high = 0;
  double low = 0;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) Add(BlockSum(values + i), high, low);
  for (; i < count; ++i) Add(static_cast<double>(values[i]) * values[i], high, low);
  Add(high, (*total)[0], (*total)[1]);
  (*total)[1] += low;
}

template <typename T>
void Scale(const at::Tensor& gradient, float factor) {
  for (T& value : device::MutableHostValues<T>(gradient)) value *= factor;
}

}  // namespace

SquareSum SumOfSquares(const std::vector<at::Tensor>& gradients) {
  SquareSum total = {};
  for (const at::Tensor& gradient : gradients) {
    if (gradient.scalar_type() == at::kDouble) {
      AddSquares(device::HostValues<double>(gradient), &total);
    } else {
      AddSquares(device::HostValues<float>(gradient), &total);
    }
  }
  return total;
}

float NormOf(const std::vector<SquareSum>& sums) {
  SquareSum total = {};
  for (const SquareSum& sum : sums) {
    Add(sum[0], total[0], total[1]);
    total[1] += sum[1];
  }
  // The low half is NaN after an infinite addend.
  const double sum = std::isfinite(total[0]) ? total[0] + total[1] : total[0];
  return static_cast<float>(std::sqrt(sum));
}

void ScaleGradients(const std::vector<at::Tensor>& gradients, float factor) {
  for (const at::Tensor& gradient : gradients) {
    if (gradient.scalar_type() == at::kDouble) {
      Scale<double>(gradient, factor);
    } else {
      Scale<float>(gradient, factor);
    }
  }
}

void ClipGradients(const std::vector<at::Tensor>& gradients, float norm, double max_norm) {
  const float scale = static_cast<float>(max_norm / (static_cast<double>(norm) + 1e-6));
  if (scale < 1.0f) ScaleGradients(gradients, scale);
}

at::Tensor SumOfSquaresOn(c10::Device device, const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_grad;
  if (gradients.empty()) return at::zeros({}, at::TensorOptions(at::kDouble).device(device));
  return at::stack(at::_foreach_norm(gradients, 2, at::kDouble)).square().sum();
}

at::Tensor ClipFactor(const at::Tensor& norm, double max_norm) {
  return norm.add(1e-6).reciprocal().mul(max_norm).clamp_max(1);
}

void ScaleGradientsBy(const at::Tensor& factor, const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return;
  const c10::NoGradGuard no_grad;
  // LibTorch has one kernel for the whole list only if the types are equal.
  at::_foreach_mul_(gradients, factor.to(gradients.front().scalar_type()));
}

}  // namespace muster::optim
