#include "worker/optim/clip.h"

#include <cmath>
#include <cstdint>

namespace muster::optim {
namespace {

// sum += value, what the addition rounds off goes to `low` (Knuth's TwoSum).
inline void Add(double value, double& high, double& low) {
  const double sum = high + value;
  const double added = sum - high;
  low += (high - (sum - added)) + (value - added);
  high = sum;
}

// Eight running sums, so that additions need not wait for one another.
template <typename T>
void AddSquares(const T* values, int64_t count, SquareSum* total) {
  constexpr int kLanes = 8;
  double high[kLanes] = {};
  double low[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      Add(value * value, high[lane], low[lane]);
    }
  }
  for (; i < count; ++i) Add(static_cast<double>(values[i]) * values[i], high[0], low[0]);
  for (int lane = 0; lane < kLanes; ++lane) {
    Add(high[lane], (*total)[0], (*total)[1]);
    (*total)[1] += low[lane];
  }
}

template <typename T>
void Scale(const at::Tensor& gradient, float factor) {
  T* values = static_cast<T*>(gradient.mutable_data_ptr());
  for (int64_t i = 0; i < gradient.numel(); ++i) values[i] *= factor;
}

}  // namespace

SquareSum SumOfSquares(const std::vector<at::Tensor>& gradients) {
  SquareSum total = {};
  for (const at::Tensor& gradient : gradients) {
    if (gradient.scalar_type() == at::kDouble) {
      AddSquares(gradient.const_data_ptr<double>(), gradient.numel(), &total);
    } else {
      AddSquares(gradient.const_data_ptr<float>(), gradient.numel(), &total);
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
  // What an infinite addend leaves in the low half is no number.
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

}  // namespace muster::optim
