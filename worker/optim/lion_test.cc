#include "worker/optim/factories.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace muster::optim {
namespace {

float Value(int64_t i, int seed) { return static_cast<float>(std::sin(i * 0.7 + seed * 1.3)); }

at::Tensor Filled(int64_t elements, int seed) {
  at::Tensor tensor = at::empty({elements});
  for (int64_t i = 0; i < elements; ++i) tensor.data_ptr<float>()[i] = Value(i, seed);
  return tensor;
}

// The formula in float64, one number at a time.
struct ScalarLion {
  double p, m = 0;
  void Step(double g, double lr, double weight_decay, const LionOptions& o) {
    const double direction = o.beta1 * m + (1 - o.beta1) * g;
    // The sign of a number nearer to zero would depend on rounding.
    if (direction != 0) {
      EXPECT_GT(std::abs(direction), 1e-6);
    }
    p *= 1 - lr * weight_decay;
    p -= lr * ((direction > 0) - (direction < 0));
    m = o.beta2 * m + (1 - o.beta2) * g;
  }
};

class LionFollowsTheFormula : public testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(Lion, LionFollowsTheFormula, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return c10::toString(info.param); });

TEST_P(LionFollowsTheFormula, OfEachParameterWithItsOwnSettings) {
  const double bound = GetParam() == at::kDouble ? 1e-14 : 1e-6;
  const LionOptions options{.beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};
  const auto made = [](int64_t elements, int seed) {
    return Filled(elements, seed).to(GetParam()).requires_grad_(true);
  };
  std::vector<OptimizedParameter> parameters = {{"a", made(1, 1)},
                                                {"b", made(17, 2), 0.0},
                                                {"c", made(100, 3), std::nullopt, 0.5},
                                                {"d", made(64, 4)}};
  std::vector<std::vector<ScalarLion>> expected;
  for (size_t k = 0; k < parameters.size(); ++k) {
    expected.emplace_back();
    for (int64_t i = 0; i < parameters[k].tensor.numel(); ++i) {
      expected[k].push_back({.p = Value(i, k + 1)});
    }
  }
  auto optimizer = CreateLion(parameters, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 5; ++step) {
    const double lr = 0.01 * (step + 1);
    for (size_t k = 0; k < parameters.size(); ++k) {
      const int seed = 100 + 10 * step + k;
      auto& [name, tensor, own_decay, lr_scale, state, bucket] = parameters[k];
      // A new gradient tensor in every step.
      tensor.mutable_grad() = Filled(tensor.numel(), seed).to(GetParam());
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        expected[k][i].Step(Value(i, seed), lr * lr_scale, own_decay.value_or(0.1), options);
      }
    }
    ASSERT_TRUE((*optimizer)->Step(lr).ok());
  }
  const auto state = (*optimizer)->State();
  ASSERT_EQ(state.size(), parameters.size());
  for (size_t k = 0; k < parameters.size(); ++k) {
    EXPECT_EQ(state[k].parameter, parameters[k].name);
    EXPECT_EQ(state[k].slot, "exp_avg");
    EXPECT_EQ(state[k].tensor.scalar_type(), GetParam());
    for (size_t i = 0; i < expected[k].size(); ++i) {
      const int64_t index = i;
      EXPECT_NEAR(parameters[k].tensor.detach()[index].item<double>(), expected[k][i].p, bound);
      EXPECT_NEAR(state[k].tensor[index].item<double>(), expected[k][i].m, bound);
    }
  }
}

TEST(Lion, ZeroGradientStillDecaysAndMovesByTheMeanOnly) {
  at::Tensor p = at::full({1}, 2.0f).requires_grad_(true);
  auto optimizer = CreateLion({{"p", p}}, {.weight_decay = 0.5});
  p.mutable_grad() = at::zeros({1});
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_FLOAT_EQ(p.detach()[0].item<float>(), 1.9f);
  (*optimizer)->State()[0].tensor.fill_(1e-3f);
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_FLOAT_EQ(p.detach()[0].item<float>(), 1.9f * 0.95f - 0.1f);
}

TEST(Lion, AGradientThatIsNotANumberIsSeenInTheParameter) {
  // One place is beside others, as a vector instruction takes them, and one is in the remainder.
  for (const int64_t place : {3, 33}) {
    at::Tensor p = at::full({34}, 1.0f).requires_grad_(true);
    auto optimizer = CreateLion({{"p", p}}, {});
    p.mutable_grad() = at::full({34}, -1.0f);
    p.mutable_grad()[place].fill_(std::numeric_limits<float>::quiet_NaN());
    ASSERT_TRUE((*optimizer)->Step(0.5).ok());
    for (int64_t i = 0; i < 34; ++i) {
      const float found = p.detach()[i].item<float>();
      if (i == place) {
        EXPECT_TRUE(std::isnan(found));
      } else {
        EXPECT_EQ(found, 1.5f) << i;
      }
    }
  }
}

TEST(Lion, StateFilledFromOutsideContinuesBitwise) {
  const auto run = [](at::Tensor p, Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      p.mutable_grad() = Filled(p.numel(), step);
      ASSERT_TRUE(optimizer.Step(0.01).ok());
    }
  };
  const LionOptions options{.weight_decay = 0.1};
  at::Tensor p = Filled(50, 1).requires_grad_(true);
  auto undisturbed = CreateLion({{"p", p}}, options);
  run(p, **undisturbed, 0, 4);
  at::Tensor q = at::empty({50});
  q.copy_(p.detach());
  q.requires_grad_(true);
  auto resumed = CreateLion({{"p", q}}, options);
  (*resumed)->State()[0].tensor.copy_((*undisturbed)->State()[0].tensor);
  run(p, **undisturbed, 4, 8);
  run(q, **resumed, 4, 8);
  EXPECT_TRUE(p.detach().equal(q.detach()));
}

TEST(Lion, AMissingGradientIsNamedAndNothingMoves) {
  at::Tensor p = at::full({1}, 1.0f).requires_grad_(true), q = at::zeros({1}).requires_grad_(true);
  auto optimizer = CreateLion({{"p", p}, {"q", q}}, {});
  p.mutable_grad() = at::full({1}, 1.0f);
  EXPECT_EQ(std::string((*optimizer)->Step(0.1).message()), "parameter 'q' has no gradient");
  EXPECT_EQ(p.detach()[0].item<float>(), 1.0f);
  EXPECT_EQ((*optimizer)->State()[0].tensor[0].item<float>(), 0.0f);
}

TEST(Lion, AStepIsSeenByWhatSavedTheParameterForABackward) {
  at::Tensor p = at::full({1}, 1.0f).requires_grad_(true);
  auto optimizer = CreateLion({{"p", p}}, {});
  p.mutable_grad() = at::full({1}, 1.0f);
  const auto before = p._version();
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_GT(p._version(), before);
}

}  // namespace
}  // namespace muster::optim
