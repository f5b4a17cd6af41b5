#include "worker/optim/factories.h"

#include <cmath>
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
struct ScalarAdadelta {
  double p, square = 0, acc = 0;
  void Step(double g, double lr, double weight_decay, const AdadeltaOptions& o) {
    g += weight_decay * p;
    square = o.rho * square + (1 - o.rho) * g * g;
    const double delta = std::sqrt(acc + o.eps) / std::sqrt(square + o.eps) * g;
    acc = o.rho * acc + (1 - o.rho) * delta * delta;
    p -= lr * delta;
  }
};

class AdadeltaFollowsTheFormula : public testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(Adadelta, AdadeltaFollowsTheFormula,
                         testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return c10::toString(info.param); });

TEST_P(AdadeltaFollowsTheFormula, OfEachParameterWithItsOwnSettings) {
  const double bound = GetParam() == at::kDouble ? 1e-14 : 1e-6;
  const AdadeltaOptions options{.rho = 0.8, .eps = 1e-3, .weight_decay = 0.1};
  const auto made = [](int64_t elements, int seed) {
    return Filled(elements, seed).to(GetParam()).requires_grad_(true);
  };
  std::vector<OptimizedParameter> parameters = {{"a", made(1, 1)},
                                                {"b", made(17, 2), 0.0},
                                                {"c", made(100, 3), std::nullopt, 0.5},
                                                {"d", made(64, 4)}};
  std::vector<std::vector<ScalarAdadelta>> expected;
  for (size_t k = 0; k < parameters.size(); ++k) {
    expected.emplace_back();
    for (int64_t i = 0; i < parameters[k].tensor.numel(); ++i) {
      expected[k].push_back({.p = Value(i, k + 1)});
    }
  }
  auto optimizer = CreateAdadelta(parameters, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 5; ++step) {
    const double lr = 0.5 * (step + 1);
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
  ASSERT_EQ(state.size(), 3 * parameters.size());
  for (size_t k = 0; k < parameters.size(); ++k) {
    const at::Tensor found = parameters[k].tensor.detach();
    EXPECT_EQ(state[3 * k].parameter, parameters[k].name);
    EXPECT_EQ(state[3 * k].slot, "square_avg");
    EXPECT_EQ(state[3 * k + 1].slot, "acc_delta");
    EXPECT_EQ(state[3 * k + 2].slot, "step");
    EXPECT_EQ(state[3 * k + 2].tensor.item<float>(), 5.0f);
    for (int64_t i = 0; i < found.numel(); ++i) {
      const ScalarAdadelta& one = expected[k][i];
      EXPECT_NEAR(found[i].item<double>(), one.p, bound);
      EXPECT_NEAR(state[3 * k].tensor[i].item<double>(), one.square, bound);
      EXPECT_NEAR(state[3 * k + 1].tensor[i].item<double>(), one.acc, bound);
    }
  }
}

TEST(Adadelta, ZeroGradientStillDecays) {
  at::Tensor p = at::full({1}, 2.0f).requires_grad_(true);
  auto optimizer = CreateAdadelta({{"p", p}}, {.weight_decay = 0.5});
  p.mutable_grad() = at::zeros({1});
  ASSERT_TRUE((*optimizer)->Step(1).ok());
  EXPECT_LT(p.detach()[0].item<float>(), 2.0f);
}

TEST(Adadelta, StateFilledFromOutsideContinuesBitwise) {
  const auto run = [](at::Tensor p, Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      p.mutable_grad() = Filled(p.numel(), step);
      ASSERT_TRUE(optimizer.Step(0.5).ok());
    }
  };
  const AdadeltaOptions options{.weight_decay = 0.1};
  at::Tensor p = Filled(50, 1).requires_grad_(true);
  auto undisturbed = CreateAdadelta({{"p", p}}, options);
  run(p, **undisturbed, 0, 4);
  at::Tensor q = at::empty({50});
  q.copy_(p.detach());
  q.requires_grad_(true);
  auto resumed = CreateAdadelta({{"p", q}}, options);
  for (int slot = 0; slot < 3; ++slot) {
    (*resumed)->State()[slot].tensor.copy_((*undisturbed)->State()[slot].tensor);
  }
  run(p, **undisturbed, 4, 8);
  run(q, **resumed, 4, 8);
  EXPECT_TRUE(p.detach().equal(q.detach()));
}

TEST(Adadelta, AMissingGradientIsNamedAndNothingMoves) {
  at::Tensor p = at::full({1}, 1.0f).requires_grad_(true), q = at::zeros({1}).requires_grad_(true);
  auto optimizer = CreateAdadelta({{"p", p}, {"q", q}}, {});
  p.mutable_grad() = at::full({1}, 1.0f);
  EXPECT_EQ(std::string((*optimizer)->Step(0.1).message()), "parameter 'q' has no gradient");
  EXPECT_EQ(p.detach()[0].item<float>(), 1.0f);
  EXPECT_EQ((*optimizer)->State()[2].tensor.item<float>(), 0.0f);
}

TEST(Adadelta, AStepIsSeenByWhatSavedTheParameterForABackward) {
  at::Tensor p = at::full({1}, 1.0f).requires_grad_(true);
  auto optimizer = CreateAdadelta({{"p", p}}, {});
  p.mutable_grad() = at::full({1}, 1.0f);
  const auto before = p._version();
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_GT(p._version(), before);
}

}  // namespace
}  // namespace muster::optim
