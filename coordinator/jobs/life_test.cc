#include "coordinator/jobs/life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/saves.h"

namespace muster::jobs {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);
constexpr Patience kPatience;

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }

Job NewJob(uint32_t world_size = 2, uint32_t max_restarts = 1) {
  Job job;
  job.id = "job";
  job.number = 1;
  job.plan.world_size = world_size;
  job.plan.max_restarts = max_restarts;
  return job;
}

std::vector<Rank> Ranks(const Job& job) {
  std::vector<Rank> ranks(job.plan.world_size);
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    ranks[i].node = "n" + std::to_string(i);
    ranks[i].incarnation = "g" + std::to_string(job.generation + 1) + "r" + std::to_string(i);
  }
  return ranks;
}

// The processes of a new generation come to train.
void Begin(Job* job, uint64_t step = 0) {
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    OnAttached(job, rank);
    OnSessionStarted(job, rank, step);
  }
}

Job Running(uint32_t world_size = 2, uint32_t max_restarts = 1) {
  Job job = NewJob(world_size, max_restarts);
  StartGeneration(&job, Ranks(job), At(0));
  Begin(&job);
  return job;
}

Exit Code(int code) { return {.cause = Exit::Cause::kCode, .number = code}; }
Exit Signal(int signal) { return {.cause = Exit::Cause::kSignal, .number = signal}; }

TEST(Life, RunsFromQueuedToSucceeded) {
  Job job = NewJob();
  EXPECT_TRUE(job.waiting());
  StartGeneration(&job, Ranks(job), At(1));
  EXPECT_EQ(job.state, State::kStarting);
  EXPECT_EQ(job.generation, 1);
  EXPECT_EQ(job.start_time, At(1));
  OnSessionStarted(&job, 1, 0);
  EXPECT_EQ(job.state_reason, "1 of 2 ranks are ready");
  OnSessionStarted(&job, 0, 0);
  EXPECT_EQ(job.state, State::kRunning);
  OnFinished(&job, 0, false, kPatience, At(2));
  EXPECT_TRUE(OnExit(&job, 0, Code(0), kPatience, At(2)).empty());
  EXPECT_EQ(job.state, State::kRunning);
  OnFinished(&job, 1, false, kPatience, At(3));
  EXPECT_TRUE(OnExit(&job, 1, Code(0), kPatience, At(4)).empty());
  EXPECT_EQ(job.state, State::kSucceeded);
  EXPECT_EQ(job.end_time, At(4));
  EXPECT_EQ(job.restarts, 0);
}

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
  EXPECT_EQ(job.state, State::kRunning);
  EXPECT_EQ(job.state_reason, "rank 1 has had no input since step 5");
  OnRanksJoined(&job, {{0, 106}, {1, 5}});
  EXPECT_EQ(job.state_reason, "rank 1 has had no input since step 5");
  job.step = 300;
  OnStep(&job);
  EXPECT_EQ(job.state_reason, "rank 1 has had no input since step 5, and 1 more for long");
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
  OnExit(&job, 1, Signal(9), kPatience, At(1));
  OnExit(&job, 0, Code(1), kPatience, At(2));
  StartGeneration(&job, Ranks(job), At(3));
  EXPECT_EQ(job.ranks[1].joined_since, 0);
  OnRanksJoined(&job, {{0, 3}});
  EXPECT_EQ(job.state, State::kStarting) << "it is told before the session stands";
  EXPECT_EQ(job.ranks[0].joined_since, 3);
}

constexpr char kFull[] = "No space left on device";

TEST(Life, SavesThatFailAreToldWhileItRuns) {
  Job job = Running();
  OnSaveFailed(&job, 5, kFull, At(1));
  OnSave(&job);
  EXPECT_EQ(job.state, State::kRunning);
  EXPECT_EQ(job.state_reason,
            "the last save failed: No space left on device; there is no checkpoint");
  EXPECT_EQ(job.reason_code, "SAVE_FAILED");
  job.step = 104;
  OnRanksJoined(&job, {{1, 5}});
  EXPECT_EQ(job.state_reason,
            "the last save failed: No space left on device; there is no checkpoint; rank 1 has had no "
            "input since step 5");
  OnRanksJoined(&job, {});
  OnSaved(&job, 10, At(2));
  OnSave(&job);
  EXPECT_EQ(job.state_reason, "");
  EXPECT_EQ(job.reason_code, "");
}

TEST(Life, AFinalSaveThatFailedFailsTheJobForGoodAndSaysWhatIsKept) {
  Job job = Running();
  job.checkpoints = {{.step = 40, .path = "/c/40"}};
  for (uint32_t rank : {0, 1}) {
    OnFailureReport(&job, rank, {.reason = kFull, .permanent = true, .code = "FINAL_SAVE_FAILED"},
                    At(1));
  }
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Code(1), kPatience, At(2));
  EXPECT_EQ(job.state, State::kFailed);
  EXPECT_EQ(job.reason_code, "FINAL_SAVE_FAILED");
  ASSERT_EQ(job.events.size(), 1);
  EXPECT_EQ(job.events[0].reason, "FINAL_SAVE_FAILED");
  EXPECT_EQ(job.events[0].message, kFull);
  EXPECT_EQ(job.state_reason,
            "rank 0 on node 'n0': No space left on device; kept: the checkpoint of step 40 in /c/40");
  EXPECT_EQ(job.restarts, 0);
}

// Workers of the program before this one finish also where their last save failed.
TEST(Life, AJobThatFinishedWithoutItsLastCheckpointIsNoSuccess) {
  Job job = Running(1);
  OnSaveFailed(&job, 5, kFull, At(1));
  OnFinished(&job, 0, false, kPatience, At(1));
  OnExit(&job, 0, Code(0), kPatience, At(2));
  EXPECT_EQ(job.state, State::kFailed);
  EXPECT_EQ(job.reason_code, "FINAL_SAVE_FAILED");
  EXPECT_EQ(job.state_reason,
            "training is done, but its last save failed: No space left on device; no checkpoint is kept");
}

TEST(Life, AStopWhoseSaveFailedSaysSo) {
  Job job = Running(1);
  OnSaveFailed(&job, 5, kFull, At(1));
  OnStop(&job, kPatience, At(1));
  OnFinished(&job, 0, false, kPatience, At(1));
  OnExit(&job, 0, Code(0), kPatience, At(2));
  EXPECT_EQ(job.state, State::kCancelled);
  EXPECT_EQ(job.reason_code, "SAVE_FAILED");
  EXPECT_EQ(job.state_reason,
            "stopped as asked, but its last save failed: No space left on device; no checkpoint is kept");
}

TEST(Life, WhyTrainingEndedEarlyIsTheReasonOfTheEnd) {
  Job job = Running(1);
  job.ended_early = "rank 1 has run out";
  OnFinished(&job, 0, false, kPatience, At(1));
  OnExit(&job, 0, Code(0), kPatience, At(2));
  EXPECT_EQ(job.state, State::kSucceeded);
  EXPECT_EQ(job.state_reason, "rank 1 has run out");
}

TEST(Life, AnExitBeforeTheWorkIsDoneEndsTheGeneration) {
  for (const Exit& exit : {Code(0), Code(1), Signal(9)}) {
    Job job = Running();
    EXPECT_EQ(OnExit(&job, 1, exit, kPatience, At(1)), (Ended{0}));
    EXPECT_EQ(job.state, State::kRecovering);
    EXPECT_TRUE(OnExit(&job, 0, Code(1), kPatience, At(2)).empty());
    EXPECT_EQ(job.state, State::kRecovering);
    EXPECT_TRUE(job.waiting());
    EXPECT_EQ(RootCause(job.failures)->root.rank, 1);
    StartGeneration(&job, Ranks(job), At(3));
    EXPECT_EQ(job.state, State::kStarting);
    EXPECT_EQ(job.generation, 2);
    EXPECT_EQ(job.restarts, 1);
  }
}

TEST(Life, AGenerationStartsOnlyWhenNobodyOfTheFormerIsLeft) {
  Job job = Running();
  OnFailureReport(&job, 0, {.reason = "x"}, At(1));
  EXPECT_FALSE(job.waiting());
  StartGeneration(&job, Ranks(job), At(1));
  EXPECT_EQ(job.generation, 1);
  OnExit(&job, 0, Code(1), kPatience, At(2));
  EXPECT_FALSE(job.waiting());
  OnExit(&job, 1, Signal(15), kPatience, At(2));
  EXPECT_TRUE(job.waiting());
}

TEST(Life, RestartsAreCounted) {
  Job job = Running(1, 2);
  for (int failure = 0; failure < 2; ++failure) {
    OnExit(&job, 0, Signal(11), kPatience, At(1));
    ASSERT_EQ(job.state, State::kRecovering);
    StartGeneration(&job, Ranks(job), At(2));
    Begin(&job);
  }
  OnExit(&job, 0, Signal(11), kPatience, At(3));
  EXPECT_EQ(job.state, State::kFailed);
  EXPECT_EQ(job.restarts, 2);
  EXPECT_EQ(job.state_reason,
            "rank 0 on node 'n0': killed by signal 11; restarted 2 of 2 times allowed");
}

TEST(Life, APermanentFailureFailsTheJobOnceItsProcessesAreGone) {
  Job job = Running(2, 5);
  EXPECT_EQ(OnFailureReport(&job, 0, {.reason = "loss is nan", .permanent = true}, At(1)),
            (Ended{0, 1}));
  EXPECT_EQ(job.state, State::kRecovering);
  OnExit(&job, 0, Code(1), kPatience, At(1));
  OnExit(&job, 1, Signal(15), kPatience, At(2));
  EXPECT_EQ(job.state, State::kFailed);
  EXPECT_EQ(job.restarts, 0);
  EXPECT_EQ(RootCause(job.failures)->root.reason, "loss is nan");
  EXPECT_TRUE(RootCause(job.failures)->consequences.empty());
}

TEST(Life, TheCauseMayBecomeKnownAfterWhatFollowedFromIt) {
  Job job = Running();
  EXPECT_EQ(OnFailureReport(&job, 0, {.reason = "rank 1 is gone", .consequence = true}, At(1)),
            (Ended{0, 1}));
  // SIGKILL of ours would come two seconds later: this one had another sender.
  OnExit(&job, 1, Signal(9), kPatience, At(1.5));
  OnExit(&job, 0, Code(1), kPatience, At(3));
  EXPECT_EQ(RootCause(job.failures)->root.rank, 1);
  EXPECT_EQ(RootCause(job.failures)->root.reason, "killed by signal 9");
}

TEST(Life, WhatEndsAsToldIsNoCause) {
  for (const auto& [exit, when] : std::vector<std::pair<Exit, double>>{
           {Signal(15), 1.5}, {Signal(9), 3}, {Code(1), 1.5}, {Code(143), 1.5}}) {
    Job job = Running();
    OnFailureReport(&job, 0, {.reason = "boom"}, At(1));
    OnExit(&job, 1, exit, kPatience, At(when));
    EXPECT_EQ(job.failures.size(), 1) << exit.number;
  }
}

TEST(Life, ALostWorkerIsToldToEndAndAGoneOneIsNot) {
  Job job = Running();
  EXPECT_EQ(OnLost(&job, 1, "silent", At(1)), (Ended{0, 1}));
  EXPECT_TRUE(OnLost(&job, 0, "silent too", At(1)).empty());
  EXPECT_EQ(job.failures.size(), 1);
  EXPECT_TRUE(OnGone(&job, 1, "agent lost", At(2)).empty());
  EXPECT_TRUE(OnGone(&job, 0, "agent lost", At(2)).empty());
  EXPECT_TRUE(job.waiting());
}

TEST(Life, FinishedRanksMayVanish) {
  Job job = Running();
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, false, kPatience, At(1));
  OnGone(&job, 0, "agent lost", At(2));
  OnExit(&job, 1, Signal(11), kPatience, At(2));
  EXPECT_EQ(job.state, State::kSucceeded);
}

TEST(Life, ProcessesThatHangAtTheirExitAreEndedAndTheJobSucceeds) {
  Job job = Running();
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, false, kPatience, At(1));
  EXPECT_TRUE(OnTick(&job, At(30)).empty());
  EXPECT_EQ(OnTick(&job, At(31)), (Ended{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(9), kPatience, At(33));
  EXPECT_EQ(job.state, State::kSucceeded);
}

TEST(Life, WhatDoesNotEndIsToldAgain) {
  Job job = Running();
  OnExit(&job, 1, Signal(9), kPatience, At(1));
  EXPECT_TRUE(OnTick(&job, At(5)).empty());
  EXPECT_EQ(OnTick(&job, At(11)), (Ended{0}));
  EXPECT_TRUE(OnTick(&job, At(12)).empty());
}

TEST(Life, ANewGenerationIsNotHeldToThePatienceOfTheFormer) {
  Job job = Running();
  OnExit(&job, 1, Signal(9), kPatience, At(1));
  OnExit(&job, 0, Signal(15), kPatience, At(2));
  StartGeneration(&job, Ranks(job), At(3));
  EXPECT_TRUE(OnTick(&job, At(1000)).empty());
  EXPECT_EQ(job.state, State::kStarting);
}

TEST(Life, AnInterruptionIsNoRestart) {
  Job job = Running(2, 0);
  EXPECT_EQ(OnInterrupted(&job, "node 'n0' is drained", At(1)), (Ended{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(15), kPatience, At(1));
  EXPECT_EQ(job.state, State::kRecovering);
  StartGeneration(&job, Ranks(job), At(2));
  EXPECT_EQ(job.generation, 2);
  EXPECT_EQ(job.restarts, 0);
  EXPECT_TRUE(job.failures.empty());
}

Exit Planned(Exit::Why why) {
  Exit exit = Signal(15);
  exit.why = why;
  return exit;
}

TEST(NodeFault, OfAProcessThatWasLostWithItsAgentExplainsWhatTheOthersSaidBefore) {
  Job job = Running(2, 0);
  OnFailureReport(&job, 0, {.reason = "rank 1: connection closed by peer", .consequence = true}, At(1));
  OnExit(&job, 0, Code(1), kPatience, At(1));
  // A new agent found what it left; the former one killed it, and is gone.
  Exit lost = Signal(9);
  lost.why = Exit::Why::kNodeFault;
  OnExit(&job, 1, lost, kPatience, At(60));
  EXPECT_EQ(EndOf(job), End::kNodeFault);
  EXPECT_EQ(job.state, State::kRecovering) << "no restart is used";
}

TEST(PlannedEnd, IsNoFailureAndUsesNoRestart) {
  for (const auto& [why, reason] : std::vector<std::pair<Exit::Why, std::string>>{
           {Exit::Why::kAgentStopped, "the agent of node 'n1' was stopped"},
           {Exit::Why::kDrained, "node 'n1' is drained"},
           {Exit::Why::kPreempted, "node 'n1' is needed for something else"},
           {Exit::Why::kLeaseOver, "node 'n1' heard nothing of the coordinator for a whole lease"},
           {Exit::Why::kStoppedAsTold, "a process on node 'n1' was stopped"}}) {
    Job job = Running(2, 0);
    EXPECT_EQ(OnExit(&job, 1, Planned(why), kPatience, At(1)), (Ended{0}));
    EXPECT_EQ(job.state, State::kRecovering);
    OnExit(&job, 0, Signal(15), kPatience, At(2));
    EXPECT_EQ(job.state, State::kRecovering);
    EXPECT_EQ(job.state_reason, reason + "; waits for slots");
    EXPECT_TRUE(job.failures.empty());
    EXPECT_EQ(job.not_before, absl::InfinitePast());
    StartGeneration(&job, Ranks(job), At(3));
    EXPECT_EQ(job.restarts, 0);
    EXPECT_EQ(job.interruption, "");
  }
}

TEST(PlannedEnd, WhatFollowedFromItIsNoFailureWhicheverComesFirst) {
  for (const bool first : {true, false}) {
    Job job = Running(2, 0);
    if (first) OnExit(&job, 1, Planned(Exit::Why::kAgentStopped), kPatience, At(1));
    OnFailureReport(&job, 0, {.reason = "rank 1 is gone", .consequence = true}, At(1));
    if (!first) OnExit(&job, 1, Planned(Exit::Why::kAgentStopped), kPatience, At(1));
    OnExit(&job, 0, Code(1), kPatience, At(2));
    EXPECT_EQ(job.state, State::kRecovering) << first;
    EXPECT_TRUE(job.failures.empty());
  }
}

TEST(PlannedEnd, AFailureOfTheJobBesideItCounts) {
  Job job = Running(3, 1);
  OnExit(&job, 1, Planned(Exit::Why::kDrained), kPatience, At(1));
  OnExit(&job, 0, Signal(11), kPatience, At(1));
  OnExit(&job, 2, Signal(15), kPatience, At(1));
  EXPECT_EQ(EndOf(job), End::kFailed);
  StartGeneration(&job, Ranks(job), At(2));
  EXPECT_EQ(job.restarts, 1);
}

TEST(PlannedEnd, AnOlderAgentThatStopsIsNoFailure) {
  Job job = Running(1, 0);
  OnExit(&job, 0, {.cause = Exit::Cause::kStartError, .start_error = "the agent is stopping"},
         kPatience, At(1));
  EXPECT_EQ(job.state, State::kRecovering);
  EXPECT_EQ(EndOf(job), End::kInterrupted);
}

TEST(Preempted, TheJobSavesEndsAndGoesOnElsewhere) {
  Job job = Running(2, 0);
  Ended ended;
  EXPECT_TRUE(OnPreempted(&job, "node 'n0' is drained", At(1), &ended));
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(job.state, State::kRunning);
  EXPECT_EQ(job.state_reason,
            "node 'n0' is drained; saves a checkpoint at its next step and goes on elsewhere");
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, true, kPatience, At(2));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Code(0), kPatience, At(2));
  EXPECT_EQ(job.state, State::kRecovering);
  EXPECT_EQ(job.state_reason, "node 'n0' is drained; waits for slots");
  EXPECT_TRUE(job.waiting());
  StartGeneration(&job, Ranks(job), At(3));
  Begin(&job, 7);
  EXPECT_EQ(job.restarts, 0);
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, false, kPatience, At(4));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Code(0), kPatience, At(4));
  EXPECT_EQ(job.state, State::kSucceeded);
}

TEST(Preempted, AJobThatStartsIsInterruptedAndOneThatEndsIsLeftAlone) {
  Job starting = NewJob();
  StartGeneration(&starting, Ranks(starting), At(0));
  Ended ended;
  EXPECT_FALSE(OnPreempted(&starting, "why", At(1), &ended));
  EXPECT_EQ(ended, (Ended{0, 1}));
  Job ending = Running();
  OnExit(&ending, 1, Signal(9), kPatience, At(1));
  EXPECT_FALSE(OnPreempted(&ending, "why", At(1), &ended));
  EXPECT_EQ(ending.interruption, "");
  Job stopping = Running();
  OnStop(&stopping, kPatience, At(1));
  EXPECT_FALSE(OnPreempted(&stopping, "why", At(1), &ended));
}

TEST(NodeFault, CostsNoRestartButTime) {
  Job job = NewJob(1, 0);
  absl::Duration wait;
  for (int failure = 0; failure < 40; ++failure) {
    StartGeneration(&job, Ranks(job), At(failure));
    OnExit(&job, 0, {.cause = Exit::Cause::kStartError, .start_error = "no such program"}, kPatience,
           At(failure));
    ASSERT_EQ(job.state, State::kRecovering);
    EXPECT_EQ(EndOf(job), End::kNodeFault);
    wait = failure == 0 ? absl::ZeroDuration() : job.not_before - At(failure);
    EXPECT_GE(wait, failure == 0 ? absl::ZeroDuration() : absl::Milliseconds(500)) << failure;
  }
  EXPECT_GE(wait, absl::Seconds(150));
  EXPECT_LE(wait, absl::Minutes(5));
  EXPECT_EQ(job.restarts, 0);
  EXPECT_THAT(job.state_reason, testing::HasSubstr("could not be started: no such program; starts again at "));
}

TEST(NodeFault, AWorkerThatEndsBeforeItsFirstMessageIsTheNodesFault) {
  for (const bool attached : {false, true}) {
    Job job = NewJob(1, 0);
    StartGeneration(&job, Ranks(job), At(0));
    if (attached) OnAttached(&job, 0);
    OnExit(&job, 0, Code(127), kPatience, At(1));
    EXPECT_EQ(job.state, attached ? State::kFailed : State::kRecovering);
  }
}

TEST(NodeFault, AWorkerMaySayItAndAnAgentsLossIsOne) {
  Job job = Running(1, 0);
  OnFailureReport(&job, 0, {.reason = "/data is not mounted", .permanent = true, .node_fault = true},
                  At(1));
  OnExit(&job, 0, Code(1), kPatience, At(1));
  EXPECT_EQ(EndOf(job), End::kNodeFault);
  EXPECT_EQ(job.state, State::kRecovering);
  Job lost = Running(1, 0);
  OnLost(&lost, 0, "was silent", At(1));
  OnGone(&lost, 0, "the agent was not heard of", At(2));
  EXPECT_EQ(lost.state, State::kRecovering);
  EXPECT_EQ(RootCause(lost.failures)->root.reason, "the agent was not heard of");
}

TEST(Budget, AnotherCheckpointRefillsIt) {
  Job job = Running(1, 1);
  const auto fail = [&] {
    OnExit(&job, 0, Signal(11), kPatience, At(1));
    return job.state;
  };
  job.checkpoints.push_back({.step = 10});
  EXPECT_EQ(fail(), State::kRecovering);
  EXPECT_EQ(job.not_before, absl::InfinitePast()) << "the first restart is at once";
  for (uint64_t step = 10; step < 50; step += 10) {
    StartGeneration(&job, Ranks(job), At(2));
    Begin(&job, step);
    job.step = step + 9;
    OnStep(&job);
    OnCheckpoint(&job, step);  // as before
    EXPECT_EQ(job.restarts_used, 1) << "a step is not enough";
    OnCheckpoint(&job, step + 10);
    EXPECT_EQ(job.restarts_used, 0);
    EXPECT_EQ(fail(), State::kRecovering);
    EXPECT_EQ(job.not_before, absl::InfinitePast());
  }
  StartGeneration(&job, Ranks(job), At(2));
  EXPECT_EQ(job.restarts, 5);
  Begin(&job, 50);
  EXPECT_EQ(fail(), State::kFailed);
}

TEST(Budget, WithoutCheckpointsAStepBeyondAllFailuresRefillsIt) {
  Job job = Running(1, 2);
  const auto fail_at = [&](uint64_t step) {
    for (job.step = 1; job.step < step; ++job.step) OnStep(&job);
    OnStep(&job);
    OnExit(&job, 0, Signal(11), kPatience, At(1));
    if (!job.waiting()) return;
    StartGeneration(&job, Ranks(job), At(2));
    Begin(&job);
  };
  fail_at(5);
  EXPECT_EQ(job.restarts_used, 1);
  fail_at(8);
  EXPECT_EQ(job.restarts_used, 1);
  fail_at(8);
  EXPECT_EQ(job.restarts_used, 2);
  fail_at(3);
  EXPECT_EQ(job.state, State::kFailed);
}

TEST(Budget, TheStepAtWhichARankFailedIsTheOneThatItSays) {
  Job job = Running(1, 1);
  job.step = 7;  // Rank 0 was not to tell of the eighth any more.
  OnFailureReport(&job, 0, {.step = 8, .reason = "boom"}, At(1));
  OnExit(&job, 0, Signal(11), kPatience, At(1));
  StartGeneration(&job, Ranks(job), At(2));
  Begin(&job);
  job.step = 8;
  OnStep(&job);
  EXPECT_EQ(job.restarts_used, 1) << "it was as far before";
  job.step = 9;
  OnStep(&job);
  EXPECT_EQ(job.restarts_used, 0);
}

TEST(Attempt, AnEndedJobGoesOnUnderItsIdWithAllItsRestarts) {
  Job job = Running(1, 1);
  job.step = 7;
  for (int failure = 0; failure < 2; ++failure) {
    OnExit(&job, 0, Signal(11), kPatience, At(1));
    if (job.terminal()) break;
    StartGeneration(&job, Ranks(job), At(2));
    Begin(&job, 7);
  }
  ASSERT_EQ(job.state, State::kFailed);
  const std::string reason = job.state_reason;
  OnNextAttempt(&job, At(5));
  EXPECT_EQ(job.attempt, 2);
  EXPECT_EQ(job.state, State::kRecovering);
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
  OnExit(&job, 0, Signal(11), kPatience, At(7));
  EXPECT_EQ(job.state, State::kRecovering);

  Job stopped = Running(1);
  OnStop(&stopped, kPatience, At(1));
  OnFinished(&stopped, 0, false, kPatience, At(2));
  OnExit(&stopped, 0, Code(0), kPatience, At(2));
  ASSERT_EQ(stopped.state, State::kCancelled);
  OnNextAttempt(&stopped, At(3));
  StartGeneration(&stopped, Ranks(stopped), At(3));
  Begin(&stopped);
  EXPECT_EQ(stopped.state, State::kRunning);

  Job done = Running(1);
  OnFinished(&done, 0, false, kPatience, At(1));
  OnExit(&done, 0, Code(0), kPatience, At(1));
  OnNextAttempt(&done, At(2));
  EXPECT_EQ(done.state, State::kSucceeded);
}

TEST(Backoff, GrowsFromTheSecondRestartOnAndIsTheSameEachTime) {
  Job job = NewJob();
  EXPECT_EQ(Backoff(job, 0, absl::Minutes(1)), absl::ZeroDuration());
  const absl::Duration first = Backoff(job, 1, absl::Minutes(1));
  EXPECT_EQ(first, Backoff(job, 1, absl::Minutes(1)));
  EXPECT_GE(first, absl::Milliseconds(500));
  EXPECT_LE(first, absl::Seconds(1));
  EXPECT_EQ(Backoff(job, 4, absl::Minutes(1)), 8 * first);
  EXPECT_EQ(Backoff(job, 4000000000u, absl::Minutes(1)), 60 * first);
  job.id = "another";
  EXPECT_NE(Backoff(job, 1, absl::Minutes(1)), first) << "jobs that fail together come back apart";
}

TEST(Stop, AWaitingJobIsCancelledAtOnce) {
  Job job = NewJob();
  EXPECT_TRUE(OnStop(&job, kPatience, At(1)).empty());
  EXPECT_EQ(job.state, State::kCancelled);

  Job recovering = Running(1);
  OnExit(&recovering, 0, Signal(9), kPatience, At(1));
  OnStop(&recovering, kPatience, At(2));
  EXPECT_EQ(recovering.state, State::kCancelled);
}

TEST(Stop, ARunningJobStopsByItself) {
  Job job = Running();
  EXPECT_TRUE(OnStop(&job, kPatience, At(1)).empty());
  EXPECT_EQ(job.state, State::kStopping);
  EXPECT_TRUE(OnStop(&job, kPatience, At(2)).empty());
  for (uint32_t rank : {0, 1}) {
    OnFinished(&job, rank, false, kPatience, At(3));
    OnExit(&job, rank, Code(0), kPatience, At(3));
  }
  EXPECT_EQ(job.state, State::kCancelled);
}

TEST(Stop, AfterItsPatienceTheProcessesAreEnded) {
  Job job = Running();
  OnStop(&job, kPatience, At(1));
  EXPECT_TRUE(OnTick(&job, At(30)).empty());
  EXPECT_EQ(OnTick(&job, At(31)), (Ended{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(15), kPatience, At(32));
  EXPECT_EQ(job.state, State::kCancelled);
  EXPECT_TRUE(job.failures.empty());
}

TEST(Stop, AStartingJobIsEndedAtOnce) {
  Job job = NewJob();
  StartGeneration(&job, Ranks(job), At(0));
  EXPECT_EQ(OnStop(&job, kPatience, At(1)), (Ended{0, 1}));
  EXPECT_EQ(job.state, State::kStopping);
}

TEST(Stop, AFailureWhileStoppingStartsNothingAnew) {
  Job job = Running();
  OnStop(&job, kPatience, At(1));
  EXPECT_EQ(OnExit(&job, 1, Signal(9), kPatience, At(2)), (Ended{0}));
  EXPECT_EQ(job.state, State::kStopping);
  OnExit(&job, 0, Signal(15), kPatience, At(2));
  EXPECT_EQ(job.state, State::kCancelled);
}

TEST(Loaded, EverybodyGetsTimeAnewAndVersionsNeverGoBack) {
  Job job = Running();
  job.version = 17;
  job.version_ceiling = 1017;
  OnStop(&job, kPatience, At(1));
  Job loaded = job;
  loaded.patience_end = absl::InfiniteFuture();
  OnLoaded(&loaded, kPatience, At(100));
  EXPECT_GT(loaded.version, 1017);
  EXPECT_TRUE(OnTick(&loaded, At(129)).empty());
  EXPECT_EQ(OnTick(&loaded, At(130)).size(), 2);
}

// Any events in any order: terminal states never reopen, generations and restarts only grow and
// stay within their limits, and no process of a former generation is left when the next one starts.
TEST(Life, HoldsItsInvariantsUnderRandomEvents) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    Job job = NewJob(1 + pick(4), pick(3));
    double now = 0;
    Job before = job;
    for (int event = 0; event < 60; ++event) {
      now += pick(20) * 0.5;
      const uint32_t rank = pick(job.plan.world_size + 1);
      const bool could_start = job.waiting();
      switch (pick(16)) {
        case 0:
        case 1:
          StartGeneration(&job, Ranks(job), At(now));
          EXPECT_EQ(job.generation, before.generation + (could_start ? 1 : 0));
          break;
        case 2:
        case 3:
          OnAttached(&job, rank);
          OnSessionStarted(&job, rank, pick(10));
          break;
        case 14: {
          Ended ended;
          OnPreempted(&job, "node 'n0' is drained", At(now), &ended);
          break;
        }
        case 15: {
          Exit exit = Signal(15);
          exit.why = static_cast<Exit::Why>(pick(7));
          OnExit(&job, rank, exit, kPatience, At(now));
          if (pick(4) == 0) OnCheckpoint(&job, pick(20));
          break;
        }
        case 4:
        case 5:
          OnFinished(&job, rank, pick(4) == 0, kPatience, At(now));
          break;
        case 6:
          OnFailureReport(&job, rank,
                          {.reason = "r", .consequence = pick(2) == 0, .permanent = pick(8) == 0},
                          At(now));
          break;
        case 7:
        case 8:
          OnExit(&job, rank, pick(2) == 0 ? Code(static_cast<int>(pick(3))) : Signal(9), kPatience,
                 At(now));
          break;
        case 9:
          OnLost(&job, rank, "lost", At(now));
          break;
        case 10:
          OnGone(&job, rank, "gone", At(now));
          break;
        case 11:
          if (pick(4) == 0) OnInterrupted(&job, "node 'n0' is drained", At(now));
          if (pick(6) == 0) OnStop(&job, kPatience, At(now));
          break;
        default: {
          const bool done = std::all_of(job.ranks.begin(), job.ranks.end(),
                                        [](const Rank& r) { return r.finished; });
          const bool ended = !OnTick(&job, At(now)).empty();
          // Time alone ends nobody who is at work.
          ASSERT_TRUE(!ended || before.ending || before.stop_requested || done) << seed;
          break;
        }
      }
      if (before.terminal()) {
        ASSERT_EQ(job.state, before.state) << seed;
        ASSERT_EQ(job.generation, before.generation);
        ASSERT_EQ(job.state_reason, before.state_reason);
      }
      ASSERT_GE(job.generation, before.generation) << seed;
      ASSERT_GE(job.restarts, before.restarts);
      ASSERT_LE(job.restarts_used, job.plan.max_restarts);
      if (job.generation > before.generation) {
        for (const Rank& r : before.ranks) ASSERT_TRUE(r.exited) << seed;
        ASSERT_FALSE(job.stop_requested);
      }
      if (job.state == State::kSucceeded) {
        for (const Rank& r : job.ranks) ASSERT_TRUE(r.finished && r.exited) << seed;
        ASSERT_FALSE(job.stop_requested);
      }
      if (job.state == State::kFailed) ASSERT_FALSE(job.failures.empty()) << seed;
      if (job.terminal()) ASSERT_FALSE(job.live) << seed;
      before = job;
    }
  }
}

}  // namespace
}  // namespace muster::jobs
