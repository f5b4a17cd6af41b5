#include "worker/train/start/skipping.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/train/start/continuation.h"

namespace muster::train {
namespace {

// A job with 24 samples and 4 samples per step, after some steps.
class SkippingTest : public testing::Test {
 protected:
  void Prepare(std::vector<Stage> stages, int64_t step = 0, data::Last last = data::Last::kDrop,
               int64_t size = 24) {
    job_.stages = std::move(stages);
    job_.batch.last = last;
    auto sampler =
        data::Sampler::Create({.size = size, .world_size = 2, .per_rank = 2, .last = last});
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    sampler_.emplace(*std::move(sampler));
    state_.sampling = {RecordOf(job_, sampler_->pace(), /*per_rank=*/false)};
    state_.step = step;
    state_.position = sampler_->pace().Ahead({}, step);
    stages_ = PlanStages(job_.stages, TimelineOf(state_.sampling));
  }
  // Returns "4: 0/8 to 0/11, then 0/12": the number of samples, the first and the last place, and
  // the place where training continues.
  std::string Skip(int64_t samples, int64_t together = 1, bool dry_run = false) {
    const auto skipped = SkipSamples({.job = &job_,
                                      .session_state = &state_,
                                      .stages = &stages_,
                                      .sampler = &*sampler_,
                                      .written = job_.schedule,
                                      .together = together},
                                     samples, dry_run);
    if (!skipped.ok()) return std::string(absl::StatusCodeToString(skipped.status().code()));
    return absl::StrCat(skipped->samples(), ": ", skipped->first_epoch(), "/", skipped->first(),
                        " to ", skipped->last_epoch(), "/", skipped->last(), ", then ",
                        state_.position.epoch, "/", state_.position.cursor);
  }

  Job job_;
  SessionState state_;
  std::optional<data::Sampler> sampler_;
  std::vector<PlannedStage> stages_;
};

TEST_F(SkippingTest, TheNextStepFollowsTheSamplesThatWereLeftOut) {
  Prepare({FitStage{.steps = 100}}, 2);
  EXPECT_EQ(Skip(3), "3: 0/8 to 0/10, then 0/11");
  EXPECT_EQ(Skip(1), "1: 0/11 to 0/11, then 0/12");
  EXPECT_EQ(TotalSteps(stages_), 100) << "a stage by steps has as many";
  EXPECT_EQ(TimelineOf(state_.sampling).After(2), state_.position);
  EXPECT_EQ(TimelineOf(state_.sampling).After(3), (data::Position{0, 16}));
}

TEST_F(SkippingTest, AcrossTheEndOfAnEpochWhatIsDroppedIsNotCounted) {
  Prepare({FitStage{.steps = 100}}, 4, data::Last::kDrop, 26);
  EXPECT_EQ(Skip(20), "20: 0/16 to 1/11, then 1/12");
  Prepare({FitStage{.steps = 100}}, 4, data::Last::kPad, 26);
  EXPECT_EQ(Skip(20), "20: 0/16 to 1/9, then 1/10");
}

TEST_F(SkippingTest, AStageOfEpochsHasFewerSteps) {
  Prepare({FitStage{.epochs = 2}, FitStage{.steps = 5}}, 3);
  EXPECT_EQ(TotalSteps(stages_), 17);
  EXPECT_EQ(Skip(8), "8: 0/12 to 0/19, then 0/20");
  EXPECT_EQ(TotalSteps(stages_), 15);
}

TEST_F(SkippingTest, AlsoOfWhatIsLeftOutBeforeTheFirstStepOfTheStage) {
  Prepare({FitStage{.epochs = 2}});
  EXPECT_EQ(Skip(8), "8: 0/0 to 0/7, then 0/8");
  EXPECT_EQ(TotalSteps(stages_), 10);
  EXPECT_EQ(Skip(24), "24: 0/8 to 1/7, then 1/8");
  EXPECT_EQ(TotalSteps(stages_), 4);
}

TEST_F(SkippingTest, AScheduleEndsWithTheStepsThatAreLeft) {
  job_.schedule = optim::WarmupCosine{};
  Prepare({FitStage{.epochs = 2}}, 3);
  ASSERT_EQ(Skip(8), "8: 0/12 to 0/19, then 0/20");
  EXPECT_EQ(std::get<optim::WarmupCosine>(job_.schedule).total_steps, 10);
}

TEST_F(SkippingTest, AScheduleOfTheJobFileStays) {
  job_.schedule = optim::WarmupCosine{.total_steps = 12};
  Prepare({FitStage{.epochs = 2}}, 3);
  ASSERT_EQ(Skip(8), "8: 0/12 to 0/19, then 0/20");
  EXPECT_EQ(std::get<optim::WarmupCosine>(job_.schedule).total_steps, 12);
}

TEST_F(SkippingTest, WithoutAStepThatIsLeftNothingIsLeftOut) {
  Prepare({FitStage{.epochs = 1}}, 3);
  EXPECT_EQ(Skip(12), "FAILED_PRECONDITION");
  EXPECT_EQ(Skip(int64_t{1} << 48), "FAILED_PRECONDITION");
  EXPECT_EQ(state_.position, (data::Position{0, 12}));
  EXPECT_EQ(state_.sampling.size(), 1u);
  EXPECT_EQ(Skip(8), "8: 0/12 to 0/19, then 0/20");
}

TEST_F(SkippingTest, APlanChangesNothing) {
  Prepare({FitStage{.epochs = 2}}, 2);
  EXPECT_EQ(Skip(4, 1, /*dry_run=*/true), "4: 0/8 to 0/11, then 0/8");
  EXPECT_EQ(state_.sampling.size(), 1u);
  EXPECT_EQ(TotalSteps(stages_), 12);
}

TEST_F(SkippingTest, WhatBelongsTogetherIsLeftOutTogether) {
  Prepare({FitStage{.steps = 100}}, 2);
  EXPECT_EQ(Skip(1, /*together=*/4), "4: 0/8 to 0/11, then 0/12");
  EXPECT_EQ(Skip(5, /*together=*/4), "8: 0/12 to 0/19, then 0/20");
}

TEST_F(SkippingTest, WhereStepsMayBeUnevenWholeStepsAreLeftOut) {
  Prepare({FitStage{.steps = 100}}, 5, data::Last::kUneven, 26);
  EXPECT_EQ(Skip(1), "4: 0/20 to 0/23, then 0/24");
  EXPECT_EQ(Skip(3), "2: 0/24 to 0/25, then 0/26");
  EXPECT_EQ(Skip(8), "8: 1/0 to 1/7, then 1/8");
  EXPECT_EQ(Skip(28), "26: 1/8 to 2/7, then 2/8");
}

TEST_F(SkippingTest, ASessionGoesOnFromACheckpointAfterIt) {
  Prepare({FitStage{.epochs = 2}});
  Skip(8);
  ASSERT_EQ(TotalSteps(stages_), 10);
  const CheckpointSampling past{
      .step = 0, .position = state_.position, .sampling = state_.sampling};
  const SessionSampling present{.sampling = RecordOf(job_, sampler_->pace(), false),
                                .stages = job_.stages};
  const Continuation continuation = Continue(past, present);
  EXPECT_EQ(continuation.position, state_.position);
  EXPECT_EQ(continuation.sampling, state_.sampling);
  EXPECT_TRUE(continuation.told.empty());
  EXPECT_EQ(TotalSteps(PlanStages(job_.stages, TimelineOf(continuation.sampling))), 10);
}

}  // namespace
}  // namespace muster::train
