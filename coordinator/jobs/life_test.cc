#include "coordinator/jobs/life.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/life_fixture.h"

namespace muster::jobs {
namespace {

TEST(Life, RunsFromQueuedToSucceeded) {
  Job job = NewJob();
  EXPECT_TRUE(job.waiting());
  StartGeneration(&job, Ranks(job), At(1));
  EXPECT_EQ(job.state(), State::kStarting);
  EXPECT_EQ(job.generation, 1);
  EXPECT_EQ(job.start_time, At(1));
  OnSessionStarted(&job, 1, 0);
  EXPECT_EQ(job.state_reason, "1 of 2 ranks are ready");
  OnSessionStarted(&job, 0, 0);
  EXPECT_EQ(job.state(), State::kRunning);
  OnFinished(&job, 0, false, kTimeouts, At(2));
  EXPECT_TRUE(OnExit(&job, 0, Code(0), kTimeouts, At(2)).empty());
  EXPECT_EQ(job.state(), State::kRunning);
  OnFinished(&job, 1, false, kTimeouts, At(3));
  EXPECT_TRUE(OnExit(&job, 1, Code(0), kTimeouts, At(4)).empty());
  EXPECT_EQ(job.state(), State::kSucceeded);
  EXPECT_EQ(job.end_time(), At(4));
  EXPECT_EQ(job.restarts, 0);
}

TEST(Life, AnExitBeforeTheWorkIsDoneEndsTheGeneration) {
  for (const Exit& exit : {Code(0), Code(1), Signal(9)}) {
    Job job = Running();
    EXPECT_EQ(OnExit(&job, 1, exit, kTimeouts, At(1)), (RanksToEnd{0}));
    EXPECT_EQ(job.state(), State::kRecovering);
    EXPECT_TRUE(OnExit(&job, 0, Code(1), kTimeouts, At(2)).empty());
    EXPECT_EQ(job.state(), State::kRecovering);
    EXPECT_TRUE(job.waiting());
    EXPECT_EQ(RootCause(job.failures)->root.rank, 1);
    StartGeneration(&job, Ranks(job), At(3));
    EXPECT_EQ(job.state(), State::kStarting);
    EXPECT_EQ(job.generation, 2);
    EXPECT_EQ(job.restarts, 1);
  }
}

TEST(Life, AGenerationStartsOnlyWhenNobodyOfTheFormerIsLeft) {
  Job job = Running();
  OnFailureReport(&job, 0, {.reason = "x"}, kTimeouts, At(1));
  EXPECT_FALSE(job.waiting());
  StartGeneration(&job, Ranks(job), At(1));
  EXPECT_EQ(job.generation, 1);
  OnExit(&job, 0, Code(1), kTimeouts, At(2));
  EXPECT_FALSE(job.waiting());
  OnExit(&job, 1, Signal(15), kTimeouts, At(2));
  EXPECT_TRUE(job.waiting());
}

TEST(Life, APermanentFailureFailsTheJobOnceItsProcessesAreGone) {
  Job job = Running(2, 5);
  EXPECT_EQ(
      OnFailureReport(&job, 0, {.reason = "loss is nan", .permanent = true}, kTimeouts, At(1)),
      (RanksToEnd{0, 1}));
  EXPECT_EQ(job.state(), State::kRecovering);
  OnExit(&job, 0, Code(1), kTimeouts, At(1));
  OnExit(&job, 1, Signal(15), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.restarts, 0);
  EXPECT_EQ(RootCause(job.failures)->root.reason, "loss is nan");
  EXPECT_TRUE(RootCause(job.failures)->consequences.empty());
}

TEST(Life, TheCauseMayBecomeKnownAfterWhatFollowedFromIt) {
  Job job = Running();
  EXPECT_EQ(
      OnFailureReport(&job, 0, {.reason = "rank 1 is gone", .consequence = true}, kTimeouts, At(1)),
      (RanksToEnd{0, 1}));
  // The coordinator's SIGKILL would come two seconds later: this one had another sender.
  OnExit(&job, 1, Signal(9), kTimeouts, At(1.5));
  OnExit(&job, 0, Code(1), kTimeouts, At(3));
  EXPECT_EQ(RootCause(job.failures)->root.rank, 1);
  EXPECT_EQ(RootCause(job.failures)->root.reason,
            "killed by signal 9 (SIGKILL; perhaps the memory was used up)");
}

TEST(Life, WhatEndsAsToldIsNoCause) {
  for (const auto& [exit, when] : std::vector<std::pair<Exit, double>>{
           {Signal(15), 1.5}, {Signal(9), 3}, {Code(1), 1.5}, {Code(143), 1.5}}) {
    Job job = Running();
    OnFailureReport(&job, 0, {.reason = "boom"}, kTimeouts, At(1));
    OnExit(&job, 1, exit, kTimeouts, At(when));
    EXPECT_EQ(job.failures.size(), 1) << exit.number;
  }
}

TEST(Life, ALostWorkerIsToldToEndAndAGoneOneIsNot) {
  Job job = Running();
  EXPECT_EQ(OnLost(&job, 1, {"silent"}, At(1)), (RanksToEnd{0, 1}));
  EXPECT_TRUE(OnLost(&job, 0, {"silent too"}, At(1)).empty());
  EXPECT_EQ(job.failures.size(), 1);
  EXPECT_TRUE(OnGone(&job, 1, "agent lost", At(2)).empty());
  EXPECT_TRUE(OnGone(&job, 0, "agent lost", At(2)).empty());
  EXPECT_TRUE(job.waiting());
}

TEST(Life, FinishedRanksMayVanish) {
  Job job = Running();
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, false, kTimeouts, At(1));
  OnGone(&job, 0, "agent lost", At(2));
  OnExit(&job, 1, Signal(11), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kSucceeded);
}

TEST(Life, ProcessesThatHangAtTheirExitAreEndedAndTheJobSucceeds) {
  Job job = Running();
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, false, kTimeouts, At(1));
  EXPECT_TRUE(OnTick(&job, At(30)).empty());
  EXPECT_EQ(OnTick(&job, At(31)), (RanksToEnd{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(9), kTimeouts, At(33));
  EXPECT_EQ(job.state(), State::kSucceeded);
}

TEST(Life, WhatDoesNotEndIsToldAgain) {
  Job job = Running();
  OnExit(&job, 1, Signal(9), kTimeouts, At(1));
  EXPECT_TRUE(OnTick(&job, At(5)).empty());
  EXPECT_EQ(OnTick(&job, At(11)), (RanksToEnd{0}));
  EXPECT_TRUE(OnTick(&job, At(12)).empty());
}

TEST(Life, ANewGenerationDoesNotKeepTheDeadlineOfTheOneBefore) {
  Job job = Running();
  OnExit(&job, 1, Signal(9), kTimeouts, At(1));
  OnExit(&job, 0, Signal(15), kTimeouts, At(2));
  StartGeneration(&job, Ranks(job), At(3));
  EXPECT_TRUE(OnTick(&job, At(1000)).empty());
  EXPECT_EQ(job.state(), State::kStarting);
}

TEST(Preempted, TheJobSavesEndsAndGoesOnElsewhere) {
  Job job = Running(2, 0);
  job.plan.checkpoint_directory = "/ckpt";
  RanksToEnd ended;
  EXPECT_TRUE(OnPreempted(&job, "node 'n0' is drained", At(1), &ended));
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(job.state(), State::kRunning);
  EXPECT_EQ(
      job.state_reason,
      "node 'n0' is drained; saves a checkpoint at its next step and continues on other nodes");
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, true, kTimeouts, At(2));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Code(0), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kRecovering);
  EXPECT_EQ(job.state_reason, "node 'n0' is drained; waits for slots");
  EXPECT_TRUE(job.waiting());
  StartGeneration(&job, Ranks(job), At(3));
  Begin(&job, 7);
  EXPECT_EQ(job.restarts, 0);
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, false, kTimeouts, At(4));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Code(0), kTimeouts, At(4));
  EXPECT_EQ(job.state(), State::kSucceeded);
}

TEST(Preempted, AJobThatStartsIsInterruptedAndOneThatEndsIsLeftAlone) {
  Job starting = NewJob();
  StartGeneration(&starting, Ranks(starting), At(0));
  RanksToEnd ended;
  EXPECT_FALSE(OnPreempted(&starting, "why", At(1), &ended));
  EXPECT_EQ(ended, (RanksToEnd{0, 1}));
  Job ending = Running();
  OnExit(&ending, 1, Signal(9), kTimeouts, At(1));
  EXPECT_FALSE(OnPreempted(&ending, "why", At(1), &ended));
  EXPECT_EQ(ending.interruption(), "");
  Job stopping = Running();
  OnStop(&stopping, kTimeouts, At(1));
  EXPECT_FALSE(OnPreempted(&stopping, "why", At(1), &ended));
}

TEST(Attempt, AnEndedJobGoesOnUnderItsIdWithAllItsRestarts) {
  Job job = Running(1, 1);
  job.step = 7;
  for (int failure = 0; failure < 2; ++failure) {
    OnExit(&job, 0, Signal(11), kTimeouts, At(1));
    if (job.terminal()) break;
    StartGeneration(&job, Ranks(job), At(2));
    Begin(&job, 7);
  }
  ASSERT_EQ(job.state(), State::kFailed);
  const std::string reason = job.state_reason;
  OnNextAttempt(&job, At(5));
  EXPECT_EQ(job.attempt, 2);
  EXPECT_EQ(job.state(), State::kRecovering);
  EXPECT_TRUE(job.waiting());
  EXPECT_EQ(job.ended_attempts, (std::vector<AttemptEnd>{{.attempt = 1,
                                                          .state = State::kFailed,
                                                          .state_reason = reason,
                                                          .end_time = At(1),
                                                          .step = 7}}));
  OnNextAttempt(&job, At(5));
  EXPECT_EQ(job.attempt, 2) << "it has not ended";
  StartGeneration(&job, Ranks(job), At(6));
  Begin(&job, 7);
  EXPECT_EQ(job.generation, 3);
  EXPECT_EQ(job.restarts, 1);
  OnExit(&job, 0, Signal(11), kTimeouts, At(7));
  EXPECT_EQ(job.state(), State::kRecovering);

  Job stopped = Running(1);
  OnStop(&stopped, kTimeouts, At(1));
  OnFinished(&stopped, 0, false, kTimeouts, At(2));
  OnExit(&stopped, 0, Code(0), kTimeouts, At(2));
  ASSERT_EQ(stopped.state(), State::kCancelled);
  OnNextAttempt(&stopped, At(3));
  StartGeneration(&stopped, Ranks(stopped), At(3));
  Begin(&stopped);
  EXPECT_EQ(stopped.state(), State::kRunning);

  Job done = Running(1);
  OnFinished(&done, 0, false, kTimeouts, At(1));
  OnExit(&done, 0, Code(0), kTimeouts, At(1));
  OnNextAttempt(&done, At(2));
  EXPECT_EQ(done.state(), State::kSucceeded);
}

TEST(Stop, AWaitingJobIsCancelledAtOnce) {
  Job job = NewJob();
  EXPECT_TRUE(OnStop(&job, kTimeouts, At(1)).empty());
  EXPECT_EQ(job.state(), State::kCancelled);

  Job recovering = Running(1);
  OnExit(&recovering, 0, Signal(9), kTimeouts, At(1));
  OnStop(&recovering, kTimeouts, At(2));
  EXPECT_EQ(recovering.state(), State::kCancelled);
}

TEST(Stop, ARunningJobStopsByItself) {
  Job job = Running();
  EXPECT_TRUE(OnStop(&job, kTimeouts, At(1)).empty());
  EXPECT_EQ(job.state(), State::kStopping);
  EXPECT_TRUE(OnStop(&job, kTimeouts, At(2)).empty());
  for (uint32_t rank : {0, 1}) {
    OnFinished(&job, rank, false, kTimeouts, At(3));
    OnExit(&job, rank, Code(0), kTimeouts, At(3));
  }
  EXPECT_EQ(job.state(), State::kCancelled);
}

TEST(Stop, AfterItsTimeoutTheProcessesAreEnded) {
  Job job = Running();
  OnStop(&job, kTimeouts, At(1));
  EXPECT_TRUE(OnTick(&job, At(30)).empty());
  EXPECT_EQ(OnTick(&job, At(31)), (RanksToEnd{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(15), kTimeouts, At(32));
  EXPECT_EQ(job.state(), State::kCancelled);
  EXPECT_TRUE(job.failures.empty());
}

TEST(Stop, AStartingJobIsEndedAtOnce) {
  Job job = NewJob();
  StartGeneration(&job, Ranks(job), At(0));
  EXPECT_EQ(OnStop(&job, kTimeouts, At(1)), (RanksToEnd{0, 1}));
  EXPECT_EQ(job.state(), State::kStopping);
}

TEST(Stop, AFailureWhileStoppingDoesNotRestartTheJob) {
  Job job = Running();
  OnStop(&job, kTimeouts, At(1));
  EXPECT_EQ(OnExit(&job, 1, Signal(9), kTimeouts, At(2)), (RanksToEnd{0}));
  EXPECT_EQ(job.state(), State::kStopping);
  OnExit(&job, 0, Signal(15), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kCancelled);
}

TEST(Loaded, EveryRankGetsItsTimeAgainAndVersionsNeverDecrease) {
  Job job = Running();
  job.version = 17;
  job.version_ceiling = 1017;
  OnStop(&job, kTimeouts, At(1));
  Job loaded = job;
  loaded.alive()->end_deadline = absl::InfiniteFuture();
  OnLoaded(&loaded, kTimeouts, At(100));
  EXPECT_GT(loaded.version, 1017);
  EXPECT_TRUE(OnTick(&loaded, At(129)).empty());
  EXPECT_EQ(OnTick(&loaded, At(130)).size(), 2);
}

}  // namespace
}  // namespace muster::jobs
