#include "worker/train/step/autocast.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>

#include <thread>

namespace muster::train {
namespace {

at::ScalarType TypeOfALinear() {
  const at::Tensor ones = at::full({2, 2}, 1.0f);
  return at::linear(ones, ones).scalar_type();
}

TEST(AutocastScope, RunsMatrixProductsInItsTypeWhileItLives) {
  EXPECT_EQ(TypeOfALinear(), at::kFloat);
  {
    const AutocastScope float32(Precision::kFloat32);
    EXPECT_EQ(TypeOfALinear(), at::kFloat);
  }
  {
    const AutocastScope bfloat16(Precision::kBfloat16);
    EXPECT_EQ(TypeOfALinear(), at::kBFloat16);
    {
      const AutocastScope float16(Precision::kFloat16);
      EXPECT_EQ(TypeOfALinear(), at::kHalf);
    }
    EXPECT_EQ(TypeOfALinear(), at::kBFloat16);
  }
  EXPECT_EQ(TypeOfALinear(), at::kFloat);
}

TEST(AutocastScope, ConcernsItsThreadOnly) {
  const AutocastScope bfloat16(Precision::kBfloat16);
  at::ScalarType elsewhere = at::kHalf;
  std::thread([&elsewhere] { elsewhere = TypeOfALinear(); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

TEST(AutocastScope, TheNextOneSeesNewValuesOfAWeight) {
  at::Tensor weight = at::full({1, 1}, 2.0f).requires_grad_(true);
  const at::Tensor one = at::full({1, 1}, 1.0f);
  const auto product = [&] {
    const AutocastScope bfloat16(Precision::kBfloat16);
    return at::linear(one, weight).item<float>();
  };
  EXPECT_EQ(product(), 2);
  weight.detach().fill_(3);
  EXPECT_EQ(product(), 3);
}

TEST(AutocastScope, GradientsStayFloat32) {
  at::Tensor weight = at::full({3, 2}, 2.0f).requires_grad_(true);
  at::Tensor sum;
  {
    const AutocastScope bfloat16(Precision::kBfloat16);
    sum = at::linear(at::full({1, 2}, 1.0f), weight).sum();
  }
  sum.backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad()[2][1].item<float>(), 1);
}

}  // namespace
}  // namespace muster::train
