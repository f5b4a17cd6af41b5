// The coordinator's facts about the stages of a job.
#include <gtest/gtest.h>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/jobs/checkpoints.h"

namespace muster::cluster {
namespace {

TEST(Stages, WhatIsOverIsKeptForASessionThatStartsFromTheSameStep) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = StageFinished{2, 7}}).ok());
  world.Restart();
  EXPECT_EQ(world.job("job").stages_done, 2u);
  EXPECT_EQ(world.job("job").stages_done_step, 7u);
}

TEST(Stages, WhatIsOverIsForgottenWhereASessionStartsFromAnotherStep) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = StageFinished{2, 7}}).ok());
  const SessionStarted same{.step = 7, .total_steps = 12};
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = same}).ok());
  EXPECT_EQ(world.job("job").stages_done, 2u);
  EXPECT_EQ(world.job("job").fit_steps, 12u);
  ASSERT_TRUE(world.Report(10, {.sequence = 4, .what = SessionStarted{.step = 5}}).ok());
  EXPECT_EQ(world.job("job").stages_done, 0u);
  EXPECT_EQ(world.job("job").fit_steps, 12u) << "0 tells nothing";
}

TEST(Stages, AJobIsCompleteWhereItsStagesEndedEarly) {
  jobs::Job job;
  job.plan.total_steps = 20;
  job.step = 12;
  EXPECT_EQ(jobs::TotalSteps(job), 20u);
  job.fit_steps = 15;
  EXPECT_EQ(jobs::TotalSteps(job), 15u) << "a session knows better";
  job.phase = jobs::life::Ended{jobs::life::Ended::Outcome::kSucceeded};
  EXPECT_EQ(jobs::TotalSteps(job), 12u);
  job.state_reason = "rank 1 has no input left";
  EXPECT_EQ(jobs::TotalSteps(job), 15u) << "steps are missing";
}

TEST(Stages, WhatIsOverIsForgottenWhereAPersonSaysFromWhereTheJobGoesOn) {
  jobs::Job job;
  job.stages_done = 2;
  job.stages_done_step = 7;
  jobs::DecideStart(&job, /*from_scratch=*/false, "/elsewhere/step-7-g1");
  EXPECT_EQ(job.stages_done, 0u);
}

}  // namespace
}  // namespace muster::cluster
