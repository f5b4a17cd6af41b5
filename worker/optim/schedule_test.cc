#include "worker/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace muster::optim {
namespace {

TEST(Schedule, ConstantIsOne) {
  EXPECT_EQ(LearningRateFactor(Constant{}, 0), 1.0);
  EXPECT_EQ(LearningRateFactor(Constant{}, 1000000), 1.0);
}

TEST(Schedule, WarmUpStartsAboveZeroAndReachesOne) {
  const WarmupCosine schedule{.warmup_steps = 4, .total_steps = 12, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 3), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 4), 1.0);
}

TEST(Schedule, CosineHalvesInTheMiddleAndStaysAtTheMinimum) {
  const WarmupCosine schedule{.warmup_steps = 4, .total_steps = 12, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 8), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 6), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 12), 0.1);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 99), 0.1);
}

TEST(Schedule, WithoutWarmUpItStartsAtOne) {
  EXPECT_EQ(LearningRateFactor(WarmupCosine{.total_steps = 10}, 0), 1.0);
}

TEST(Schedule, AllWarmUpEndsAtTheMinimum) {
  const WarmupCosine schedule{.warmup_steps = 5, .total_steps = 5, .min_ratio = 0.2};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 4), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 5), 0.2);
}

}  // namespace
}  // namespace muster::optim
