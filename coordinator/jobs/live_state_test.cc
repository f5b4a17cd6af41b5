#include "coordinator/jobs/live_state.h"

#include <gtest/gtest.h>

#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/life_fixture.h"

namespace muster::jobs {
namespace {

TEST(Life, ARankThatHasBeenWithoutInputForLongIsNamedWhileItLasts) {
  Job job = Running(3);
  job.step = 4;
  OnRanksJoined(&job, {{1, 5}});
  EXPECT_EQ(job.ranks[1].joined_since, 5);
  job.step = 103;  // 99 steps
  OnStep(&job);
  EXPECT_EQ(job.state_reason, "");
  job.step = 104;
  OnStep(&job);
  EXPECT_EQ(job.state(), State::kRunning);
  EXPECT_EQ(job.state_reason, "rank 1 has had no input since step 5");
  OnRanksJoined(&job, {{0, 106}, {1, 5}});
  EXPECT_EQ(job.state_reason, "rank 1 has had no input since step 5");
  job.step = 300;
  OnStep(&job);
  EXPECT_EQ(job.state_reason, "rank 1 has had no input since step 5, and 1 more for a long time");
  OnPaused(&job, true);
  EXPECT_EQ(job.state_reason, "as asked");
  OnPaused(&job, false);
  OnRanksJoined(&job, {});  // the next epoch
  EXPECT_EQ(job.ranks[1].joined_since, 0);
  EXPECT_EQ(job.state_reason, "");
}

TEST(Life, ANewGenerationKnowsNothingOfWhoHadJoined) {
  Job job = Running();
  OnRanksJoined(&job, {{1, 1}});
  OnExit(&job, 1, Signal(9), kTimeouts, At(1));
  OnExit(&job, 0, Code(1), kTimeouts, At(2));
  StartGeneration(&job, Ranks(job), At(3));
  EXPECT_EQ(job.ranks[1].joined_since, 0);
  OnRanksJoined(&job, {{0, 3}});
  EXPECT_EQ(job.state(), State::kStarting) << "it is told before the session stands";
  EXPECT_EQ(job.ranks[0].joined_since, 3);
}

TEST(Life, SavesThatFailAreToldWhileItRuns) {
  Job job = Running();
  OnSaveFailed(&job, 5, kFull, At(1));
  OnSave(&job);
  EXPECT_EQ(job.state(), State::kRunning);
  EXPECT_EQ(job.state_reason,
            "the last save failed: No space left on device; there is no checkpoint");
  EXPECT_EQ(job.reason_code, "SAVE_FAILED");
  job.step = 104;
  OnRanksJoined(&job, {{1, 5}});
  EXPECT_EQ(
      job.state_reason,
      "the last save failed: No space left on device; there is no checkpoint; rank 1 has had no "
      "input since step 5");
  OnRanksJoined(&job, {});
  OnSaved(&job, 10, At(2));
  OnSave(&job);
  EXPECT_EQ(job.state_reason, "");
  EXPECT_EQ(job.reason_code, "");
}

TEST(LiveState, WhatKeepsARankFromStartingIsShown) {
  Job job = NewJob(3);
  StartGeneration(&job, Ranks(job), At(0));
  EXPECT_TRUE(OnTrouble(&job, 1, "cannot reach rank 0"));
  EXPECT_FALSE(OnTrouble(&job, 1, "cannot reach rank 0")) << "that is nothing new";
  EXPECT_TRUE(OnTrouble(&job, 2, "cannot reach rank 0"));
  EXPECT_EQ(job.state(), State::kStarting);
  EXPECT_EQ(job.state_reason,
            "0 of 3 ranks are ready; rank 1 on node 'n1' cannot reach rank 0 (and 1 rank more)");
  EXPECT_EQ(job.reason_code, "RANKS_CANNOT_MEET");
  OnTrouble(&job, 1, "");
  OnTrouble(&job, 2, "");
  EXPECT_EQ(job.state_reason, "0 of 3 ranks are ready");
  EXPECT_EQ(job.reason_code, "");
  OnTrouble(&job, 1, "cannot reach rank 0");
  Begin(&job);
  EXPECT_EQ(job.state_reason, "");
}

}  // namespace
}  // namespace muster::jobs
