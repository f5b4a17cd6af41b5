#include "worker/optim/schedule.h"

#include "gtest/gtest.h"

namespace muster::optim {
namespace {

TEST(LearningRateFactor, ConstantIsOne) {
  EXPECT_EQ(LearningRateFactor(Constant{}, 0), 1.0);
  EXPECT_EQ(LearningRateFactor(Constant{}, 1000000), 1.0);
}

TEST(LearningRateFactor, WarmupStartsAboveZeroAndReachesOne) {
  const WarmupCosine schedule{.warmup_steps = 4, .total_steps = 12, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 1), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 3), 1.0);
}

TEST(LearningRateFactor, CosineFallsFromOneToTheMinimumAndStaysThere) {
  const WarmupCosine schedule{.warmup_steps = 4, .total_steps = 12, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 4), 1.0);
  EXPECT_NEAR(LearningRateFactor(schedule, 6), 0.1 + 0.9 * 0.85355339059327379, 1e-15);
  EXPECT_NEAR(LearningRateFactor(schedule, 8), 0.55, 1e-15);
  EXPECT_NEAR(LearningRateFactor(schedule, 10), 0.1 + 0.9 * 0.14644660940672624, 1e-15);
  for (int64_t step : {12, 13, 1000}) EXPECT_EQ(LearningRateFactor(schedule, step), 0.1);
}

TEST(LearningRateFactor, WithoutWarmupTheFirstStepHasTheFullRate) {
  EXPECT_EQ(LearningRateFactor(WarmupCosine{0, 10, 0.0}, 0), 1.0);
}

TEST(LearningRateFactor, ScheduleThatIsAllWarmupGoesStraightToTheMinimum) {
  EXPECT_EQ(LearningRateFactor(WarmupCosine{3, 3, 0.2}, 2), 1.0);
  EXPECT_EQ(LearningRateFactor(WarmupCosine{3, 3, 0.2}, 3), 0.2);
}

}  // namespace
}  // namespace muster::optim
