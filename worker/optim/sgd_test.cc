#include "worker/optim/factories.h"

#include <cmath>
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

// The definition of torch.optim.SGD in float64, one number at a time: the buffer *is* the first d.
struct ScalarSgd {
  double p, b = 0;
  int t = 0;
  void Step(double g, double lr, const SgdOptions& o) {
    const double d = g + o.weight_decay * p;
    b = t++ == 0 ? d : o.momentum * b + d;
    p -= lr * (o.momentum == 0 ? d : o.nesterov ? d + o.momentum * b : b);
  }
};

class SgdFormula : public testing::TestWithParam<SgdOptions> {};

TEST_P(SgdFormula, IsFollowedFromTheFirstStepOn) {
  const SgdOptions& options = GetParam();
  at::Tensor a = Filled(1, 1).requires_grad_(true), b = Filled(77, 2).requires_grad_(true);
  auto optimizer = CreateSgd({{"a", a}, {"b", b}}, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  std::vector<ScalarSgd> expected;
  for (int64_t i = 0; i < 77; ++i) expected.push_back({.p = Value(i, 2)});
  for (int step = 0; step < 4; ++step) {
    const double lr = 0.1 / (step + 1);
    a.mutable_grad() = Filled(1, 9);
    b.mutable_grad() = Filled(77, 10 + step);
    ASSERT_TRUE((*optimizer)->Step(lr).ok());
    for (int64_t i = 0; i < 77; ++i) {
      expected[i].Step(Value(i, 10 + step), lr, options);
      EXPECT_NEAR(b.detach()[i].item<float>(), expected[i].p, 1e-6) << "step " << step;
    }
  }
  const auto state = (*optimizer)->State();
  if (options.momentum == 0) {
    EXPECT_TRUE(state.empty());
    return;
  }
  ASSERT_EQ(state.size(), 2);
  EXPECT_EQ(state[1].parameter, "b");
  EXPECT_EQ(state[1].slot, "momentum_buffer");
  for (int64_t i = 0; i < 77; ++i) {
    EXPECT_NEAR(state[1].tensor[i].item<float>(), expected[i].b, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SgdFormula,
    testing::Values(SgdOptions{}, SgdOptions{.weight_decay = 0.1}, SgdOptions{.momentum = 0.9},
                    SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
                    SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}));

TEST(Sgd, FollowsTheFormulaInFloat64) {
  const SgdOptions options{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  at::Tensor p = Filled(77, 2).to(at::kDouble).requires_grad_(true);
  auto optimizer = CreateSgd({{"p", p}}, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  std::vector<ScalarSgd> expected;
  for (int64_t i = 0; i < 77; ++i) expected.push_back({.p = Value(i, 2)});
  for (int step = 0; step < 4; ++step) {
    p.mutable_grad() = Filled(77, 10 + step).to(at::kDouble);
    ASSERT_TRUE((*optimizer)->Step(0.1).ok());
    for (int64_t i = 0; i < 77; ++i) {
      expected[i].Step(Value(i, 10 + step), 0.1, options);
      EXPECT_NEAR(p.detach()[i].item<double>(), expected[i].p, 1e-14) << "step " << step;
    }
  }
}

TEST(Sgd, StateFilledFromOutsideContinuesBitwise) {
  const auto run = [](at::Tensor p, Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      p.mutable_grad() = Filled(p.numel(), step);
      ASSERT_TRUE(optimizer.Step(0.01).ok());
    }
  };
  const SgdOptions options{.momentum = 0.9, .weight_decay = 0.01};
  at::Tensor p = Filled(50, 1).requires_grad_(true);
  auto undisturbed = CreateSgd({{"p", p}}, options);
  run(p, **undisturbed, 0, 3);
  at::Tensor q = at::empty({50});
  q.copy_(p.detach());
  q.requires_grad_(true);
  auto resumed = CreateSgd({{"p", q}}, options);
  (*resumed)->State()[0].tensor.copy_((*undisturbed)->State()[0].tensor);
  run(p, **undisturbed, 3, 6);
  run(q, **resumed, 3, 6);
  EXPECT_TRUE(p.detach().equal(q.detach()));
}

TEST(Sgd, ParametersWithSettingsOfTheirOwnAreSteppedWithThem) {
  for (const double momentum : {0.0, 0.9}) {
    const SgdOptions options{.momentum = momentum, .weight_decay = 0.1, .nesterov = momentum != 0};
    std::vector<OptimizedParameter> together = {
        {"a", Filled(20, 1).requires_grad_(true)},
        {"b", Filled(33, 2).requires_grad_(true), 0.0},
        {"c", Filled(7, 3).requires_grad_(true), std::nullopt, 0.5},
        {"d", Filled(64, 4).requires_grad_(true)}};
    std::vector<ScalarSgd> expected[4];
    for (int k = 0; k < 4; ++k) {
      for (int64_t i = 0; i < together[k].tensor.numel(); ++i) {
        expected[k].push_back({.p = Value(i, k + 1)});
      }
    }
    auto optimizer = CreateSgd(together, options);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    for (int step = 0; step < 3; ++step) {
      for (int k = 0; k < 4; ++k) {
        together[k].tensor.mutable_grad() = Filled(together[k].tensor.numel(), 20 + 5 * step + k);
        SgdOptions own = options;
        own.weight_decay = together[k].weight_decay.value_or(options.weight_decay);
        for (size_t i = 0; i < expected[k].size(); ++i) {
          expected[k][i].Step(Value(i, 20 + 5 * step + k), 0.1 * together[k].lr_scale, own);
        }
      }
      ASSERT_TRUE((*optimizer)->Step(0.1).ok());
    }
    const auto state = (*optimizer)->State();
    ASSERT_EQ(state.size(), momentum == 0 ? 0 : 4);
    for (int k = 0; k < 4; ++k) {
      for (size_t i = 0; i < expected[k].size(); ++i) {
        EXPECT_NEAR(together[k].tensor.detach()[i].item<float>(), expected[k][i].p, 1e-6);
        if (momentum != 0) EXPECT_NEAR(state[k].tensor[i].item<float>(), expected[k][i].b, 1e-6);
      }
    }
  }
}

TEST(Sgd, ZeroGradientStillMovesByMomentumAndDecay) {
  at::Tensor p = at::full({1}, 1.0f).requires_grad_(true);
  auto optimizer = CreateSgd({{"p", p}}, {.momentum = 0.5});
  p.mutable_grad() = at::full({1}, 1.0f);
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  p.mutable_grad() = at::zeros({1});
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_FLOAT_EQ(p.detach()[0].item<float>(), 1.0f - 0.1f - 0.05f);
}

TEST(Sgd, AMissingGradientIsNamedAndNothingMoves) {
  at::Tensor p = at::full({1}, 1.0f).requires_grad_(true), q = at::zeros({1}).requires_grad_(true);
  auto optimizer = CreateSgd({{"p", p}, {"q", q}}, {.momentum = 0.9});
  p.mutable_grad() = at::full({1}, 1.0f);
  EXPECT_EQ(std::string((*optimizer)->Step(0.1).message()), "parameter 'q' has no gradient");
  EXPECT_EQ(p.detach()[0].item<float>(), 1.0f);
  EXPECT_EQ((*optimizer)->State()[0].tensor[0].item<float>(), 0.0f);
}

TEST(Sgd, AGradientThatDoesNotFitIsNamed) {
  at::Tensor p = at::zeros({4}).requires_grad_(true);
  auto optimizer = CreateSgd({{"p", p}}, {});
  for (const at::Tensor& gradient :
       {at::zeros({8}).slice(0, 0, 8, 2), at::zeros({2, 2}), at::zeros({4}, at::kDouble)}) {
    p.mutable_grad() = gradient;
    EXPECT_EQ(std::string((*optimizer)->Step(0.1).message()),
              "the gradient of parameter 'p' has another shape or type");
  }
}

}  // namespace
}  // namespace muster::optim
