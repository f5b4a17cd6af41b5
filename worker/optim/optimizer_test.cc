// Both optimizers against plain float64 loops over the formulas in their headers.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/optim/adamw.h"
#include "worker/optim/clip.h"
#include "worker/optim/sgd.h"

namespace muster::optim {
namespace {

// 37 elements: not a multiple of any vector width.
constexpr int kSize = 37;

at::Tensor Make(double scale, bool leaf = false) {
  at::Tensor tensor = at::empty({kSize}, at::kFloat);
  for (int i = 0; i < kSize; ++i) tensor.data_ptr<float>()[i] = scale * std::sin(1.0 + i);
  if (leaf) tensor.set_requires_grad(true);
  return tensor;
}

// 1e-6 relative: float32 rounding over a few steps.
void ExpectNear(const at::Tensor& found, const std::vector<double>& expected) {
  for (int i = 0; i < kSize; ++i) {
    EXPECT_NEAR(found.data_ptr<float>()[i], expected[i], 1e-6 * (1 + std::fabs(expected[i]))) << i;
  }
}

std::vector<double> Values(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + kSize};
}

TEST(AdamW, FollowsTheFormula) {
  at::Tensor parameter = Make(1.0, true);
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1};
  auto optimizer = CreateAdamW({{"p", parameter}}, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  std::vector<double> p = Values(parameter), m(kSize), v(kSize);
  for (int t = 1; t <= 5; ++t) {
    const double lr = 0.01 * t;
    parameter.mutable_grad() = Make(0.3 * t);
    ASSERT_TRUE((*optimizer)->Step(lr).ok());
    for (int i = 0; i < kSize; ++i) {
      const double g = 0.3 * t * std::sin(1.0 + i);
      p[i] *= 1 - lr * options.weight_decay;
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      p[i] -= lr / (1 - std::pow(options.beta1, t)) * m[i] /
              (std::sqrt(v[i]) / std::sqrt(1 - std::pow(options.beta2, t)) + options.eps);
    }
    ExpectNear(parameter, p);
  }
  const auto state = (*optimizer)->State();
  ASSERT_EQ(state.size(), 3u);
  ExpectNear(state[0].tensor, m);
  ExpectNear(state[1].tensor, v);
  EXPECT_EQ(state[2].slot, "step");
  EXPECT_EQ(*state[2].tensor.data_ptr<float>(), 5.0f);
}

TEST(Sgd, FollowsTheFormulaFromTheFirstStep) {
  for (const double momentum : {0.0, 0.9}) {
    at::Tensor parameter = Make(1.0, true);
    auto optimizer = CreateSgd({{"p", parameter}}, {.momentum = momentum, .weight_decay = 0.05});
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    std::vector<double> p = Values(parameter), b(kSize);
    for (int t = 1; t <= 5; ++t) {
      parameter.mutable_grad() = Make(0.3 * t);
      ASSERT_TRUE((*optimizer)->Step(0.1).ok());
      for (int i = 0; i < kSize; ++i) {
        b[i] = momentum * b[i] + 0.3 * t * std::sin(1.0 + i) + 0.05 * p[i];
        p[i] -= 0.1 * b[i];
      }
      ExpectNear(parameter, p);
    }
    EXPECT_EQ((*optimizer)->State().size(), momentum == 0 ? 0u : 1u);
  }
}

TEST(Optimizer, AZeroGradientStillDecaysAndMoves) {
  at::Tensor parameter = Make(1.0, true);
  auto optimizer = CreateSgd({{"p", parameter}}, {.momentum = 0.9, .weight_decay = 0.5});
  parameter.mutable_grad() = Make(0.0);
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_NEAR(parameter.data_ptr<float>()[0], 0.95 * std::sin(1.0), 1e-6);
}

TEST(Optimizer, StateCanBeFilledInPlace) {
  at::Tensor parameter = Make(1.0, true);
  auto optimizer = CreateSgd({{"p", parameter}}, {.momentum = 1.0});
  (*optimizer)->State()[0].tensor.copy_(Make(2.0));
  parameter.mutable_grad() = Make(0.0);
  ASSERT_TRUE((*optimizer)->Step(0.5).ok());
  EXPECT_NEAR(parameter.data_ptr<float>()[3], 0.0, 1e-6);
}

TEST(Optimizer, AMissingGradientIsNamedAndNothingMoves) {
  at::Tensor a = Make(1.0, true), b = Make(1.0, true);
  auto optimizer = CreateAdamW({{"a", a}, {"b.weight", b}}, {});
  a.mutable_grad() = Make(1.0);
  const absl::Status status = (*optimizer)->Step(0.1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("b.weight"), std::string::npos);
  EXPECT_EQ(a.data_ptr<float>()[0], static_cast<float>(std::sin(1.0)));
}

TEST(Optimizer, OptionsOutsideTheirRangeAreRefused) {
  EXPECT_FALSE(CreateAdamW({}, {.beta1 = 1.0}).ok());
  EXPECT_FALSE(CreateAdamW({}, {.eps = -1}).ok());
  EXPECT_FALSE(CreateSgd({}, {.momentum = -0.1}).ok());
  EXPECT_FALSE(CreateSgd({}, {.nesterov = true}).ok());
}

TEST(Clip, ScalesToTheGlobalNormAndSaysWhatItWas) {
  const std::vector<at::Tensor> gradients = {Make(3.0), Make(4.0)};
  double squares = 0;
  for (int i = 0; i < kSize; ++i) squares += 25 * std::pow(std::sin(1.0 + i), 2);
  const double norm = std::sqrt(squares);
  EXPECT_NEAR(ClipGradientNorm(gradients, 1.0), norm, 1e-5);
  EXPECT_NEAR(GradientNorm(gradients), 1.0, 1e-5);
  EXPECT_NEAR(gradients[1].data_ptr<float>()[0], 4 * std::sin(1.0) / (norm + 1e-6), 1e-6);
}

TEST(Clip, LeavesSmallAndInfiniteGradientsAlone) {
  const std::vector<at::Tensor> small = {Make(0.001)};
  ClipGradientNorm(small, 1.0);
  EXPECT_EQ(small[0].data_ptr<float>()[0], static_cast<float>(0.001 * std::sin(1.0)));
  const std::vector<at::Tensor> infinite = {Make(1.0)};
  infinite[0].data_ptr<float>()[5] = INFINITY;
  EXPECT_FALSE(std::isfinite(ClipGradientNorm(infinite, 1.0)));
  EXPECT_EQ(infinite[0].data_ptr<float>()[0], static_cast<float>(std::sin(1.0)));
}

}  // namespace
}  // namespace muster::optim
