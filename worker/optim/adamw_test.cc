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
struct ScalarAdamW {
  double p, m = 0, v = 0;
  int t = 0;
  void Step(double g, double lr, const AdamWOptions& o) {
    ++t;
    p *= 1 - lr * o.weight_decay;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t));
    const double v_hat = v / (1 - std::pow(o.beta2, t));
    p -= lr * m_hat / (std::sqrt(v_hat) + o.eps);
  }
};

TEST(Adam, DecaysThroughTheGradient) {
  const AdamOptions options{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1};
  constexpr int64_t kElements = 40;
  const at::Tensor parameter = Filled(kElements, 0).requires_grad_(true);
  std::vector<ScalarAdamW> expected;
  for (int64_t i = 0; i < kElements; ++i) expected.push_back({.p = Value(i, 0)});
  auto optimizer = CreateAdam({{"p", parameter}}, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const AdamWOptions without_decay{options.beta1, options.beta2, options.eps, 0};
  for (int step = 0; step < 5; ++step) {
    parameter.mutable_grad() = Filled(kElements, 100 + step);
    for (int64_t i = 0; i < kElements; ++i) {
      expected[i].Step(Value(i, 100 + step) + options.weight_decay * expected[i].p, 0.01,
                       without_decay);
    }
    ASSERT_TRUE((*optimizer)->Step(0.01).ok());
    for (int64_t i = 0; i < kElements; ++i) {
      // The tolerance is for float32 and steps of 0.01.
      EXPECT_NEAR(parameter.data_ptr<float>()[i], expected[i].p, 1e-6) << step << " " << i;
    }
  }
}

TEST(AdamW, FollowsTheFormula) {
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1};
  const std::vector<int64_t> sizes = {1, 17, 100};
  std::vector<OptimizedParameter> parameters;
  std::vector<std::vector<ScalarAdamW>> expected;
  for (size_t k = 0; k < sizes.size(); ++k) {
    parameters.push_back({"p" + std::to_string(k), Filled(sizes[k], k).requires_grad_(true)});
    expected.emplace_back();
    for (int64_t i = 0; i < sizes[k]; ++i) expected[k].push_back({.p = Value(i, k)});
  }
  auto optimizer = CreateAdamW(parameters, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 5; ++step) {
    const double lr = 0.01 * (step + 1);
    for (size_t k = 0; k < sizes.size(); ++k) {
      // A new gradient tensor in every step.
      parameters[k].tensor.mutable_grad() = Filled(sizes[k], 100 + 10 * step + k);
      for (int64_t i = 0; i < sizes[k]; ++i) {
        expected[k][i].Step(Value(i, 100 + 10 * step + k), lr, options);
      }
    }
    ASSERT_TRUE((*optimizer)->Step(lr).ok());
  }
  const auto state = (*optimizer)->State();
  ASSERT_EQ(state.size(), 3 * sizes.size());
  for (size_t k = 0; k < sizes.size(); ++k) {
    EXPECT_EQ(state[3 * k].parameter, "p" + std::to_string(k));
    EXPECT_EQ(state[3 * k].slot, "exp_avg");
    EXPECT_EQ(state[3 * k + 1].slot, "exp_avg_sq");
    EXPECT_EQ(state[3 * k + 2].slot, "step");
    EXPECT_EQ(state[3 * k + 2].tensor.dim(), 0);
    EXPECT_EQ(state[3 * k + 2].tensor.item<float>(), 5.0f);
    for (int64_t i = 0; i < sizes[k]; ++i) {
      EXPECT_NEAR(parameters[k].tensor.detach()[i].item<float>(), expected[k][i].p, 1e-6);
      EXPECT_NEAR(state[3 * k].tensor[i].item<float>(), expected[k][i].m, 1e-6);
      EXPECT_NEAR(state[3 * k + 1].tensor[i].item<float>(), expected[k][i].v, 1e-6);
    }
  }
}

TEST(AdamW, FollowsTheFormulaInFloat64) {
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1};
  at::Tensor wide = Filled(37, 1).to(at::kDouble).requires_grad_(true);
  at::Tensor narrow = Filled(5, 2).requires_grad_(true);  // of another class
  std::vector<ScalarAdamW> expected;
  for (int64_t i = 0; i < 37; ++i) expected.push_back({.p = Value(i, 1)});
  auto optimizer = CreateAdamW({{"wide", wide}, {"narrow", narrow}}, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 5; ++step) {
    wide.mutable_grad() = Filled(37, 100 + step).to(at::kDouble);
    narrow.mutable_grad() = Filled(5, 7);
    for (int64_t i = 0; i < 37; ++i) expected[i].Step(Value(i, 100 + step), 0.01, options);
    ASSERT_TRUE((*optimizer)->Step(0.01).ok());
  }
  const auto state = (*optimizer)->State();
  EXPECT_EQ(state[0].tensor.scalar_type(), at::kDouble);
  // The tolerance is far below the precision of float32; the factors of bias correction are float64
  // in both.
  for (int64_t i = 0; i < 37; ++i) {
    EXPECT_NEAR(wide.detach()[i].item<double>(), expected[i].p, 1e-14);
    EXPECT_NEAR(state[0].tensor[i].item<double>(), expected[i].m, 1e-14);
    EXPECT_NEAR(state[1].tensor[i].item<double>(), expected[i].v, 1e-14);
  }
}

TEST(AdamW, StateIsThatOfItsSlotsForEachParameter) {
  auto optimizer = CreateAdamW({{"p", at::zeros({3})}, {"q", at::zeros({2, 2}, at::kDouble)}}, {});
  const auto slots = SlotsOf(AdamWOptions{});
  const auto state = (*optimizer)->State();
  ASSERT_EQ(state.size(), 2 * slots.size());
  for (size_t i = 0; i < state.size(); ++i) {
    const StateSlot& slot = slots[i % slots.size()];
    EXPECT_EQ(state[i].slot, slot.name);
    EXPECT_EQ(state[i].parameter, i < slots.size() ? "p" : "q");
    EXPECT_EQ(slot.scalar, state[i].tensor.dim() == 0) << slot.name;
    if (slot.scalar) EXPECT_EQ(state[i].tensor.scalar_type(), at::kFloat);
  }
}

TEST(AdamW, ZeroGradientStillDecays) {
  at::Tensor p = at::full({3}, 2.0f).requires_grad_(true);
  auto optimizer = CreateAdamW({{"p", p}}, {.weight_decay = 0.5});
  ASSERT_TRUE(optimizer.ok());
  p.mutable_grad() = at::zeros({3});
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_FLOAT_EQ(p.detach()[0].item<float>(), 2.0f * (1 - 0.1f * 0.5f));
}

TEST(AdamW, StateFilledFromOutsideContinuesBitwise) {
  const auto run = [](at::Tensor p, Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      p.mutable_grad() = Filled(p.numel(), step);
      ASSERT_TRUE(optimizer.Step(0.01).ok());
    }
  };
  at::Tensor p = Filled(50, 1).requires_grad_(true);
  auto undisturbed = CreateAdamW({{"p", p}}, {});
  run(p, **undisturbed, 0, 4);
  at::Tensor q = at::empty({50});
  q.copy_(p.detach());
  q.requires_grad_(true);
  auto resumed = CreateAdamW({{"p", q}}, {});
  auto from = (*undisturbed)->State();
  auto to = (*resumed)->State();
  for (size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_(from[i].tensor);
  run(p, **undisturbed, 4, 8);
  run(q, **resumed, 4, 8);
  EXPECT_TRUE(p.detach().equal(q.detach()));
}

TEST(AdamW, StepIsKeptPerParameter) {
  at::Tensor young = at::zeros({1}).requires_grad_(true), old = at::zeros({1}).requires_grad_(true);
  auto optimizer = CreateAdamW({{"young", young}, {"old", old}}, {.weight_decay = 0});
  (*optimizer)->State()[5].tensor.fill_(1000.0f);
  young.mutable_grad() = at::full({1}, 1.0f);
  old.mutable_grad() = at::full({1}, 1.0f);
  ASSERT_TRUE((*optimizer)->Step(0.1).ok());
  // The parameters differ by bias correction. In its first step `young` moves by lr. `old` moves by
  // lr * (1 - beta1) / sqrt(1 - beta2) (its corrections are 1 by now, but for 0.999^1001).
  EXPECT_NEAR(young.detach()[0].item<float>(), -0.1, 1e-6);
  const double corrected = std::sqrt(0.001 / (1 - std::pow(0.999, 1001)));
  EXPECT_NEAR(old.detach()[0].item<float>(), -0.1 * 0.1 / corrected, 1e-5);
}

TEST(AdamW, AMissingGradientIsNamedAndNothingMoves) {
  at::Tensor a = at::full({2}, 1.0f).requires_grad_(true),
             b = at::full({2}, 1.0f).requires_grad_(true);
  auto optimizer = CreateAdamW({{"a", a}, {"b", b}}, {});
  a.mutable_grad() = at::full({2}, 1.0f);
  const absl::Status status = (*optimizer)->Step(0.1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()), "parameter 'b' has no gradient");
  EXPECT_EQ(a.detach()[0].item<float>(), 1.0f);
  EXPECT_EQ((*optimizer)->State()[2].tensor.item<float>(), 0.0f);
}

TEST(AdamW, RefusesParametersThatDoNotFit) {
  const auto message = [](std::vector<OptimizedParameter> parameters, const AdamWOptions& options) {
    return std::string(CreateAdamW(std::move(parameters), options).status().message());
  };
  for (const at::Tensor& tensor :
       {at::zeros({2}, at::kHalf), at::zeros({4}).slice(0, 0, 4, 2), at::Tensor()}) {
    EXPECT_EQ(message({{"p", tensor}}, {}), "parameter 'p' is not dense float32 or float64");
  }
  EXPECT_EQ(
      message({{"p", at::zeros({2})}, {"q", at::zeros({2}, at::TensorOptions(at::kMeta))}}, {}),
      "parameter 'q' is on meta, but parameter 'p' is on cpu");
  EXPECT_EQ(message({{"p", at::zeros({2})}, {"p", at::zeros({2})}}, {}),
            "parameter 'p' appears twice");
  EXPECT_EQ(message({{"p", at::zeros({2}), -0.5}}, {}),
            "weight_decay of parameter 'p' is -0.5, allowed is >= 0");
  EXPECT_EQ(message({{"p", at::zeros({2}), 0.5, NAN}}, {}),
            "lr_scale of parameter 'p' is nan, allowed is >= 0");
}

// Parameters of three classes, interleaved, are compared with one optimizer per parameter that has
// its settings.
TEST(AdamW, ParametersWithSettingsOfTheirOwnAreSteppedWithThem) {
  const AdamWOptions options{.weight_decay = 0.1};
  const struct {
    std::optional<double> weight_decay;
    double lr_scale;
  } settings[] = {{std::nullopt, 1}, {0.0, 1}, {std::nullopt, 0.25}, {0.1, 1}, {0.0, 1}, {0.5, 0}};
  std::vector<OptimizedParameter> together;
  std::vector<at::Tensor> alone;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (size_t k = 0; k < 6; ++k) {
    const std::string name = "p" + std::to_string(k);
    const int64_t elements = 5 + 16 * k;
    together.push_back({name, Filled(elements, k).requires_grad_(true), settings[k].weight_decay,
                        settings[k].lr_scale});
    alone.push_back(Filled(elements, k).requires_grad_(true));
    AdamWOptions own = options;
    own.weight_decay = settings[k].weight_decay.value_or(options.weight_decay);
    optimizers.push_back(*CreateAdamW({{name, alone.back()}}, own));
  }
  auto optimizer = CreateAdamW(together, options);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 3; ++step) {
    for (size_t k = 0; k < 6; ++k) {
      alone[k].mutable_grad() = together[k].tensor.mutable_grad() =
          Filled(alone[k].numel(), 50 + 10 * step + k);
      ASSERT_TRUE(optimizers[k]->Step(0.01 * settings[k].lr_scale).ok());
    }
    ASSERT_TRUE((*optimizer)->Step(0.01).ok());
  }
  const auto state = (*optimizer)->State();
  for (size_t k = 0; k < 6; ++k) {
    EXPECT_TRUE(together[k].tensor.detach().equal(alone[k].detach())) << k;
    const auto own = optimizers[k]->State();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(state[3 * k + i].parameter, "p" + std::to_string(k));
      EXPECT_TRUE(state[3 * k + i].tensor.equal(own[i].tensor)) << k << " " << own[i].slot;
    }
  }
  EXPECT_TRUE(together[5].tensor.detach().equal(Filled(85, 5))) << "at rate 0 nothing moves";
}

TEST(AdamW, WithoutParametersAStepIsEmpty) {
  auto optimizer = CreateAdamW({}, {});
  EXPECT_TRUE((*optimizer)->Step(0.1).ok());
  EXPECT_TRUE((*optimizer)->State().empty());
}

}  // namespace
}  // namespace muster::optim
