#include "worker/optim/clip.h"

#include <cmath>
#include <cstdint>

namespace muster::optim {
namespace {

// Eight running sums, so that additions need not wait for one another.
double SumOfSquares(const float* values, int64_t count) {
  constexpr int kLanes = 8;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

float GradientNorm(const std::vector<at::Tensor>& gradients) {
  double sum = 0;
  for (const at::Tensor& gradient : gradients) {
    sum += SumOfSquares(gradient.const_data_ptr<float>(), gradient.numel());
  }
  return static_cast<float>(std::sqrt(sum));
}

void ScaleGradients(const std::vector<at::Tensor>& gradients, float factor) {
  for (const at::Tensor& gradient : gradients) {
    float* values = static_cast<float*>(gradient.mutable_data_ptr());
    for (int64_t i = 0; i < gradient.numel(); ++i) values[i] *= factor;
  }
}

void ClipGradients(const std::vector<at::Tensor>& gradients, float norm, double max_norm) {
  const float scale = static_cast<float>(max_norm / (static_cast<double>(norm) + 1e-6));
  if (scale < 1.0f) ScaleGradients(gradients, scale);
}

}  // namespace muster::optim
