#include <gtest/gtest.h>

#include "worker/train/trainability/trainability_changes.h"

namespace muster::train {
namespace {

constexpr int64_t kSteps = IdleHook::kSteps;

TEST(IdleHook, IsToldOnceAfterAThousandStepsWithItsCost) {
  IdleHook hook({.model = "model 'm'", .gathers = true, .calls = true});
  for (int64_t i = 1; i < kSteps; ++i) EXPECT_FALSE(hook.Called(false, 0.002).has_value()) << i;
  EXPECT_FALSE(hook.told());
  EXPECT_EQ(hook.Called(false, 0.002),
            "the step hook of model 'm' changed nothing in the last 1000 steps (writes through raw "
            "pointers are not seen), and cost 2.000 ms in each step, because all parameters are "
            "gathered for it, and the ranks hold a roll call after it; a model that needs no hook "
            "should not be a StepHook; a model whose hook only freezes and unfreezes parameters "
            "should be a FlagHook (docs/how-to/plugins.md)");
  EXPECT_TRUE(hook.told());
  for (int64_t i = 0; i < 2 * kSteps; ++i) EXPECT_FALSE(hook.Called(false, 0.002).has_value());
}

TEST(IdleHook, AChangeBeginsTheCountAnew) {
  IdleHook hook({.model = "m", .kind = models::HookKind::kFlags});
  for (int64_t i = 1; i < kSteps; ++i) EXPECT_FALSE(hook.Called(false, 1).has_value());
  EXPECT_FALSE(hook.Called(true, 1).has_value());
  for (int64_t i = 1; i < kSteps; ++i) EXPECT_FALSE(hook.Called(false, 0.001).has_value());
  EXPECT_EQ(hook.Called(false, 0.001),
            "the step hook of m changed nothing in the last 1000 steps (writes through raw "
            "pointers are not seen), and cost 1.000 ms in each step; a model that needs no hook "
            "should not be a StepHook (docs/how-to/plugins.md)");
}

}  // namespace
}  // namespace muster::train
