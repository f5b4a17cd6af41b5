#include "worker/optim/loss_scaler.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace muster::optim {
namespace {

TEST(LossScaler, BacksOffAtAnOverflowAndGrowsAfterEnoughGoodStepsInARow) {
  LossScaler scaler(
      {.initial = 64, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  const struct {
    bool finite;
    float scale;  // after the step
  } steps[] = {{true, 64}, {true, 64}, {false, 16}, {true, 16},  {true, 16}, {true, 64},
               {true, 64}, {true, 64}, {true, 256}, {false, 64}, {false, 16}};
  EXPECT_EQ(scaler.scale(), 64);
  for (const auto& [finite, scale] : steps) {
    scaler.Update(finite);
    EXPECT_EQ(scaler.scale(), scale) << &finite - &steps[0].finite;
  }
}

TEST(LossScaler, InverseIsRoundedOnce) {
  EXPECT_EQ(LossScaler({.initial = 65536}).inverse_scale(), 1.0f / 65536);
  EXPECT_EQ(LossScaler({.initial = 3}).inverse_scale(), static_cast<float>(1.0 / 3.0));
}

TEST(LossScaler, DoesNotGrowBeyondFloat32) {
  LossScaler scaler({.initial = std::ldexp(1.0, 127), .growth_factor = 2, .growth_interval = 1});
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), std::ldexp(1.0f, 127));
}

TEST(LossScaler, StateFilledFromOutsideContinues) {
  const LossScaleOptions options{.initial = 8, .growth_interval = 3};
  LossScaler undisturbed(options), resumed(options);
  for (const bool finite : {false, true, true}) undisturbed.Update(finite);
  const auto from = undisturbed.State();
  const auto to = resumed.State();
  ASSERT_EQ(from.size(), 2);
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].slot, "scaler");
    EXPECT_EQ(from[i].tensor.dim(), 0);
    EXPECT_EQ(from[i].tensor.scalar_type(), at::kFloat);
    to[i].tensor.copy_(from[i].tensor);
  }
  EXPECT_EQ(from[0].parameter, "scale");
  EXPECT_EQ(from[1].parameter, "growth_tracker");
  EXPECT_EQ(resumed.scale(), 4);
  for (LossScaler* scaler : {&undisturbed, &resumed}) scaler->Update(true);
  EXPECT_EQ(undisturbed.scale(), 8);
  EXPECT_EQ(resumed.scale(), 8);
}

}  // namespace
}  // namespace muster::optim
