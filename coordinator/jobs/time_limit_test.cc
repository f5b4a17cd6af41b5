#include <gtest/gtest.h>

#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/life.h"

namespace muster::jobs {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
absl::Time At(int64_t seconds) { return kStart + absl::Seconds(seconds); }

Job WithLimit(absl::Duration limit) {
  Job job;
  job.id = "job";
  job.plan.max_restarts = 3;
  job.plan.time_limit = limit;
  return job;
}

void Start(Job* job, absl::Time now) {
  StartGeneration(job, {{.node = "n", .incarnation = "i"}}, now);
  OnSessionStarted(job, 0, 0);
}

TEST(TimeLimit, OnlyTimeInWhichAGenerationLivesCounts) {
  Job job = WithLimit(absl::Seconds(60));
  EXPECT_EQ(TimeLeft(job, At(1000)), absl::Seconds(60));
  EXPECT_EQ(TimeLimitEnd(job), absl::InfiniteFuture());
  Start(&job, At(1000));
  EXPECT_EQ(TimeLeft(job, At(1020)), absl::Seconds(40));
  EXPECT_EQ(TimeLimitEnd(job), At(1060));
  OnGone(&job, 0, "gone", At(1020));
  EXPECT_EQ(TimeLeft(job, At(5000)), absl::Seconds(40));
  Start(&job, At(5000));
  EXPECT_EQ(TimeLimitEnd(job), At(5040));
  EXPECT_FALSE(TimeIsUp(job, At(5039)));
  EXPECT_TRUE(TimeIsUp(job, At(5040)));
}

TEST(TimeLimit, WithoutOneAJobRunsAsLongAsItTakes) {
  Job job = WithLimit(absl::InfiniteDuration());
  Start(&job, At(0));
  EXPECT_EQ(TimeLeft(job, At(1000000)), absl::InfiniteDuration());
  EXPECT_FALSE(TimeIsUp(job, At(1000000)));
  OnGone(&job, 0, "gone", At(1000000));
  EXPECT_EQ(job.state(), State::kRecovering);
  EXPECT_EQ(TimeLeft(job, At(2000000)), absl::InfiniteDuration());
}

TEST(TimeLimit, WhoseTimeIsUpStopsAtItsNextStepAndFails) {
  Job job = WithLimit(absl::Seconds(60));
  Start(&job, At(0));
  EXPECT_TRUE(OnTimeUp(&job, {}, At(60)).empty());
  EXPECT_EQ(job.state(), State::kStopping);
  EXPECT_FALSE(TimeIsUp(job, At(61)));
  job.commands.Append({.kind = v1::Operation::STOP});
  job.commands.Applied(1, 7);
  OnFinished(&job, 0, false, {}, At(62));
  OnExit(&job, 0, {}, {}, At(62));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.state_reason, "it has run for its time_limit, 1m");
  EXPECT_EQ(job.reason_code, "TIME_LIMIT");
}

TEST(TimeLimit, WhatIsDoneBeforeTheStopTakesEffectSucceeds) {
  Job job = WithLimit(absl::Seconds(60));
  Start(&job, At(0));
  OnTimeUp(&job, {}, At(60));
  job.commands.Append({.kind = v1::Operation::STOP});
  OnFinished(&job, 0, false, {}, At(62));
  OnExit(&job, 0, {}, {}, At(62));
  EXPECT_EQ(job.state(), State::kSucceeded);
}

TEST(TimeLimit, AStopThatWasAskedForBeforeIsNoFailure) {
  Job job = WithLimit(absl::Seconds(60));
  Start(&job, At(0));
  OnStop(&job, {}, At(59));
  EXPECT_FALSE(TimeIsUp(job, At(60)));
  OnFinished(&job, 0, false, {}, At(61));
  OnExit(&job, 0, {}, {}, At(61));
  EXPECT_EQ(job.state(), State::kCancelled);
}

TEST(TimeLimit, WhatIsDoneIsNotStopped) {
  Job job = WithLimit(absl::Seconds(60));
  Start(&job, At(0));
  OnFinished(&job, 0, false, {}, At(59));
  EXPECT_FALSE(TimeIsUp(job, At(60)));
  OnExit(&job, 0, {}, {}, At(61));
  EXPECT_EQ(job.state(), State::kSucceeded);
}

TEST(TimeLimit, AFailureAtItsEndStartsNoGenerationThatHasNoTime) {
  Job job = WithLimit(absl::Seconds(60));
  Start(&job, At(0));
  OnGone(&job, 0, "gone", At(60));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.state_reason, "it has run for its time_limit, 1m");
  EXPECT_EQ(job.reason_code, "TIME_LIMIT");
}

}  // namespace
}  // namespace muster::jobs
