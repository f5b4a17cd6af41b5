#include "worker/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "gtest/gtest.h"

namespace muster::optim {
namespace {

at::Tensor Tensor(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) tensor.data_ptr<float>()[i] = values[i];
  return tensor;
}

float GradientNorm(const std::vector<at::Tensor>& gradients) {
  return NormOf({SumOfSquares(gradients)});
}

TEST(ClipGradients, ScalesAllGradientsByTheGlobalNorm) {
  const at::Tensor a = Tensor({3, 0, 0}), b = Tensor({4}), c = Tensor({});
  EXPECT_EQ(GradientNorm({a, b, c}), 5.0f);
  ClipGradients({a, b, c}, 5.0f, 1.0);
  EXPECT_NEAR(a[0].item<float>(), 3.0 / (5.0 + 1e-6), 1e-7);
  EXPECT_NEAR(b[0].item<float>(), 4.0 / (5.0 + 1e-6), 1e-7);
}

TEST(ClipGradients, LeavesSmallGradientsAsTheyAre) {
  const at::Tensor a = Tensor({0.3f, 0.4f});
  ClipGradients({a}, GradientNorm({a}), 1.0);
  EXPECT_EQ(a[0].item<float>(), 0.3f);
  EXPECT_EQ(a[1].item<float>(), 0.4f);
}

TEST(ScaleGradients, MultipliesEveryElement) {
  const at::Tensor a = Tensor({1, -2, 3}), b = Tensor({0.5f}), c = Tensor({});
  ScaleGradients({a, b, c}, 0.25f);
  EXPECT_EQ(a[0].item<float>(), 0.25f);
  EXPECT_EQ(a[1].item<float>(), -0.5f);
  EXPECT_EQ(a[2].item<float>(), 0.75f);
  EXPECT_EQ(b[0].item<float>(), 0.125f);
}

TEST(GradientNorm, IsNotFiniteWhenAnyElementIsNot) {
  const float infinity = std::numeric_limits<float>::infinity();
  // The element is at every place of the unrolled sum, and behind it.
  for (int64_t place = 0; place < 19; ++place) {
    at::Tensor values = at::full({19}, 1.0f);
    values.data_ptr<float>()[place] = infinity;
    EXPECT_EQ(GradientNorm({Tensor({1}), values}), infinity) << place;
    values.data_ptr<float>()[place] = -infinity;
    EXPECT_EQ(GradientNorm({values, Tensor({1})}), infinity) << place;
    values.data_ptr<float>()[place] = NAN;
    EXPECT_TRUE(std::isnan(GradientNorm({values, Tensor({1})}))) << place;
  }
}

TEST(GradientNorm, OfNothingIsZero) { EXPECT_EQ(GradientNorm({}), 0.0f); }

TEST(GradientNorm, IsSummedInFloat64) {
  // The sum of squares would overflow in float32, and small values would be lost beside a large
  // value.
  EXPECT_FLOAT_EQ(GradientNorm({Tensor({3e30f, 4e30f})}), 5e30f);
  EXPECT_EQ(GradientNorm({Tensor({4096.0f}), at::full({1 << 20}, 1.0f)}),
            static_cast<float>(std::sqrt(4096.0 * 4096.0 + (1 << 20))));
}

TEST(GradientNorm, DoesNotDependOnHowTensorsAreCut) {
  std::vector<float> values;
  for (int i = 0; i < 10007; ++i) values.push_back(std::sin(i) * std::exp2(i % 20 - 10));
  const at::Tensor whole = Tensor(values);
  const float norm = GradientNorm({whole});
  for (int64_t cut : {1, 7, 16, 5000, 10006}) {
    EXPECT_EQ(GradientNorm({whole.narrow(0, 0, cut), whole.narrow(0, cut, 10007 - cut)}), norm);
  }
}

// The numbers span 40 binary orders of magnitude. Their plain float64 sum depends on the order of
// additions.
TEST(GradientNorm, IsTheSameHoweverTheElementsAreSharedOut) {
  std::vector<float> values;
  for (int i = 0; i < 100003; ++i) values.push_back(std::cos(i) * std::exp2(i % 41 - 20));
  const at::Tensor whole = Tensor(values);
  const SquareSum reference = SumOfSquares({whole});
  const float norm = NormOf({reference});
  bool plain_sums_differ = false;
  for (int64_t ranks = 2; ranks <= 64; ++ranks) {
    std::vector<SquareSum> sums;
    const int64_t slice = ((whole.numel() + ranks - 1) / ranks + 15) / 16 * 16;
    double plain = 0;
    for (int64_t begin = 0; begin < whole.numel(); begin += slice) {
      sums.push_back(
          SumOfSquares({whole.narrow(0, begin, std::min(slice, whole.numel() - begin))}));
      plain += sums.back()[0];
    }
    EXPECT_EQ(NormOf(sums), norm) << ranks << " ranks";
    plain_sums_differ |= plain != reference[0];
  }
  EXPECT_TRUE(plain_sums_differ) << "the low halves are not needed for these numbers";
}

// The norm is compared with sums in 64 bits of mantissa, which are exact for so few numbers of
// nearly one size.
TEST(GradientNorm, IsExactToItsLastBit) {
  for (const int64_t elements : {1, 15, 16, 17, 33, 1000}) {
    std::vector<float> values;
    long double sum = 0;
    for (int64_t i = 0; i < elements; ++i) {
      values.push_back(1 + std::sin(i) / 2);
      sum += static_cast<long double>(values.back()) * values.back();
    }
    EXPECT_EQ(GradientNorm({Tensor(values)}), static_cast<float>(std::sqrt(sum))) << elements;
  }
}

TEST(GradientNorm, OfFloat64IsThatOfItsElements) {
  EXPECT_EQ(GradientNorm({Tensor({3}).to(at::kDouble), Tensor({4})}), 5.0f);
}

TEST(ScaleGradients, MultipliesFloat64Too) {
  const at::Tensor a = Tensor({1, -2}).to(at::kDouble);
  ScaleGradients({a}, 0.25f);
  EXPECT_EQ(a[1].item<double>(), -0.5);
}

}  // namespace
}  // namespace muster::optim
