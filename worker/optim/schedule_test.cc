#include "worker/optim/schedule.h"

#include "gtest/gtest.h"

namespace muster::optim {
namespace {

TEST(LearningRateFactor, ConstantIsOne) {
  EXPECT_EQ(LearningRateFactor(Constant{}, 0), 1.0);
  EXPECT_EQ(LearningRateFactor(Constant{}, 1000000), 1.0);
}

TEST(LearningRateFactor, ConstantRisesOnlyInItsWarmup) {
  const Constant schedule{.warmup_steps = 4};
  const double expected[] = {0.25, 0.5, 0.75, 1, 1, 1};
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, step), expected[step]);
  }
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

TEST(LearningRateFactor, LinearFallsInEqualStepsToTheMinimumAndStaysThere) {
  const Linear schedule{.warmup_steps = 2, .total_steps = 6, .min_ratio = 0.2};
  const double expected[] = {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2};
  for (int64_t step = 0; step < 9; ++step) {
    EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, step), expected[step]) << step;
  }
}

TEST(LearningRateFactor, StepDecayCountsFromTheEndOfTheWarmup) {
  const StepDecay schedule{.warmup_steps = 2, .step_size = 3, .gamma = 0.5};
  const double expected[] = {0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25};
  for (int64_t step = 0; step < 9; ++step) {
    EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, step), expected[step]) << step;
  }
}

TEST(LearningRateFactor, OneCycleRisesFallsAndStays) {
  const OneCycle schedule{.total_steps = 11,
                          .pct_start = 5.0 / 11,
                          .div_factor = 5,
                          .final_div_factor = 2,
                          .anneal = OneCycle::Anneal::kLinear};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 0), 0.2);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 1), 0.4);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 2), 0.6);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 4), 1.0);
  EXPECT_NEAR(LearningRateFactor(schedule, 7), 0.55, 1e-15);
  for (int64_t step : {10, 11, 500}) EXPECT_NEAR(LearningRateFactor(schedule, step), 0.1, 1e-15);
}

TEST(LearningRateFactor, OneCycleOfThreePhasesIsSymmetricAroundItsPeak) {
  const OneCycle schedule{.total_steps = 20,
                          .pct_start = 0.3,
                          .div_factor = 10,
                          .final_div_factor = 10,
                          .three_phase = true};
  for (int64_t i = 0; i <= 5; ++i) {
    EXPECT_NEAR(LearningRateFactor(schedule, 5 - i), LearningRateFactor(schedule, 5 + i), 1e-15);
  }
  // The step is a fifth of half a cosine.
  EXPECT_NEAR(LearningRateFactor(schedule, 1), 0.1 + 0.9 * 0.09549150281252627, 1e-15);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 5), 1.0);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 10), 0.1);
  EXPECT_NEAR(LearningRateFactor(schedule, 19), 0.01, 1e-15);
}

TEST(LearningRateFactor, OneCycleOfFewStepsIsFinite) {
  for (const bool three_phase : {false, true}) {
    for (int64_t total = 1; total <= 12; ++total) {
      for (const double pct_start : {0.01, 0.1, 0.25, 1.0 / 3, 0.5}) {
        const OneCycle schedule{
            .total_steps = total, .pct_start = pct_start, .three_phase = three_phase};
        for (int64_t step = 0; step <= total; ++step) {
          const double factor = LearningRateFactor(schedule, step);
          EXPECT_GT(factor, 0) << total << " " << pct_start << " " << step;
          EXPECT_LE(factor, 1 + 1e-15) << total << " " << pct_start << " " << step;
        }
      }
    }
  }
}

TEST(EndAt, GivesAnEndToAScheduleThatHasNone) {
  Schedule schedule = Linear{};
  EndAt(8, &schedule);
  EXPECT_EQ(std::get<Linear>(schedule).total_steps, 8);
  EndAt(9, &schedule);
  EXPECT_EQ(std::get<Linear>(schedule).total_steps, 8) << "it has one";
  schedule = StepDecay{.step_size = 2};
  EndAt(9, &schedule);
  EXPECT_EQ(LearningRateFactor(schedule, 2), 0.1) << "it needs none";
}

}  // namespace
}  // namespace muster::optim
