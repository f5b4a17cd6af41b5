#include "coordinator/jobs/conclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/life_fixture.h"

namespace muster::jobs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Life, AFinalSaveThatFailedFailsTheJobForGoodAndSaysWhatIsKept) {
  Job job = Running();
  job.checkpoints = {{.step = 40, .path = "/c/40"}};
  for (uint32_t rank : {0, 1}) {
    OnFailureReport(&job, rank, {.reason = kFull, .permanent = true, .code = "FINAL_SAVE_FAILED"},
                    kTimeouts, At(1));
  }
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Code(1), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.reason_code, "FINAL_SAVE_FAILED");
  ASSERT_EQ(job.events.size(), 1);
  EXPECT_EQ(job.events[0].reason, "FINAL_SAVE_FAILED");
  EXPECT_EQ(job.events[0].message, kFull);
  EXPECT_EQ(
      job.state_reason,
      "rank 0 on node 'n0': No space left on device; kept: the checkpoint of step 40 in /c/40");
  EXPECT_EQ(job.restarts, 0);
}

// Otherwise a rank could be killed while it removes its files, or before its report of the weights'
// path.
TEST(Life, AFinalSaveThatFailedEndsNoProcess) {
  const ReportedFailure full = {.reason = kFull, .permanent = true, .code = "FINAL_SAVE_FAILED"};
  Job job = Running();
  EXPECT_THAT(OnFailureReport(&job, 1, full, kTimeouts, At(1)), IsEmpty());
  EXPECT_EQ(job.state(), State::kRunning);
  EXPECT_EQ(job.state_reason,
            "rank 1 on node 'n1': No space left on device; waits for the processes to exit");
  EXPECT_FALSE(TimeIsUp(job, absl::InfiniteFuture()));
  EXPECT_THAT(OnInterrupted(&job, "drained", At(1)), IsEmpty());
  RanksToEnd ended;
  EXPECT_FALSE(OnPreempted(&job, "drained", At(1), &ended));
  EXPECT_THAT(ended, IsEmpty());
  EXPECT_THAT(OnLost(&job, 1, {"silent"}, At(1)), IsEmpty());
  EXPECT_THAT(OnExit(&job, 1, Code(1), kTimeouts, At(1)), IsEmpty());
  job.exported_path = "/weights";
  EXPECT_THAT(OnFailureReport(&job, 0, full, kTimeouts, At(2)), IsEmpty());
  OnExit(&job, 0, Code(1), kTimeouts, At(3));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.state_reason,
            "rank 1 on node 'n1': No space left on device; no checkpoint is kept; the weights are "
            "in /weights");
}

TEST(Life, ARankMayBeLostWithItsNodeAfterAFinalSaveThatFailed) {
  const ReportedFailure full = {.reason = kFull, .permanent = true, .code = "FINAL_SAVE_FAILED"};
  for (const bool cut_off : {false, true}) {
    Job job = Running();
    OnFailureReport(&job, 1, full, kTimeouts, At(1));
    EXPECT_THAT(cut_off ? OnLeaseOver(&job, 1, At(1)) : OnGone(&job, 1, "gone", At(1)), IsEmpty());
    EXPECT_FALSE(job.ending()) << cut_off;
    OnFailureReport(&job, 0, full, kTimeouts, At(2));
    OnExit(&job, 0, Code(1), kTimeouts, At(2));
    EXPECT_EQ(job.reason_code, "FINAL_SAVE_FAILED") << cut_off;
  }
}

TEST(Life, ProgressOfAStopGivesNoMoreTimeAfterAFinalSaveThatFailed) {
  Job job = Running();
  OnStop(&job, kTimeouts, At(1));
  OnFailureReport(&job, 1, {.reason = kFull, .permanent = true, .code = "FINAL_SAVE_FAILED"},
                  kTimeouts, At(2));
  OnStopProgress(&job, kTimeouts, At(20));
  EXPECT_EQ(job.alive()->end_deadline, At(2) + kTimeouts.stop);
}

// A failure of the former generation does not apply to the running generation.
TEST(Life, AFinalSaveThatFailedOnABrokenNodeIsForgottenInTheNextGeneration) {
  Job job = Running();
  for (const uint32_t rank : {0, 1}) {
    OnFailureReport(&job, rank, {.reason = kFull, .code = "FINAL_SAVE_FAILED", .node_fault = true},
                    kTimeouts, At(1));
  }
  for (const uint32_t rank : {0, 1}) OnExit(&job, rank, Code(1), kTimeouts, At(1));
  StartGeneration(&job, Ranks(job), At(2));
  ASSERT_EQ(job.generation, 2);
  Begin(&job);
  EXPECT_FALSE(EndsByItself(job));
  EXPECT_THAT(OnLost(&job, 1, {"silent"}, At(3)), ElementsAre(0, 1));
}

TEST(Life, ARankThatHangsAfterAFinalSaveThatFailedIsEnded) {
  for (const bool restarted : {false, true}) {
    Job job = Running();
    OnFailureReport(&job, 1, {.reason = kFull, .permanent = true, .code = "FINAL_SAVE_FAILED"},
                    kTimeouts, At(1));
    OnExit(&job, 1, Code(1), kTimeouts, At(1));
    if (restarted) {
      job.alive()->end_deadline = absl::InfiniteFuture();  // end_deadline is not stored
      OnLoaded(&job, kTimeouts, At(1));
    }
    EXPECT_THAT(OnTick(&job, At(1)), IsEmpty()) << restarted;
    EXPECT_THAT(OnTick(&job, At(1) + kTimeouts.stop), ElementsAre(0)) << restarted;
    OnExit(&job, 0, Signal(15), kTimeouts, At(40));
    EXPECT_EQ(job.reason_code, "FINAL_SAVE_FAILED") << restarted;
  }
}

// Workers of the version before this one finish also if their last save failed.
TEST(Life, AJobThatFinishedWithoutItsLastCheckpointIsNoSuccess) {
  Job job = Running(1);
  OnSaveFailed(&job, 5, kFull, At(1));
  OnFinished(&job, 0, false, kTimeouts, At(1));
  OnExit(&job, 0, Code(0), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.reason_code, "FINAL_SAVE_FAILED");
  EXPECT_EQ(
      job.state_reason,
      "training is done, but its last save failed: No space left on device; no checkpoint is kept");
}

TEST(Life, AStopWhoseSaveFailedSaysSo) {
  Job job = Running(1);
  OnSaveFailed(&job, 5, kFull, At(1));
  OnStop(&job, kTimeouts, At(1));
  OnFinished(&job, 0, false, kTimeouts, At(1));
  OnExit(&job, 0, Code(0), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kCancelled);
  EXPECT_EQ(job.reason_code, "SAVE_FAILED");
  EXPECT_EQ(
      job.state_reason,
      "stopped as asked, but its last save failed: No space left on device; no checkpoint is kept");
}

TEST(Life, WhyTrainingEndedEarlyIsTheReasonOfTheEnd) {
  Job job = Running(1);
  job.alive()->ended_early = "rank 1 has run out";
  OnFinished(&job, 0, false, kTimeouts, At(1));
  OnExit(&job, 0, Code(0), kTimeouts, At(2));
  EXPECT_EQ(job.state(), State::kSucceeded);
  EXPECT_EQ(job.state_reason, "rank 1 has run out");
}

TEST(Life, RestartsAreCounted) {
  Job job = Running(1, 2);
  for (int failure = 0; failure < 2; ++failure) {
    OnExit(&job, 0, Signal(11), kTimeouts, At(1));
    ASSERT_EQ(job.state(), State::kRecovering);
    StartGeneration(&job, Ranks(job), At(2));
    Begin(&job);
  }
  OnExit(&job, 0, Signal(11), kTimeouts, At(3));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.restarts, 2);
  EXPECT_EQ(job.state_reason,
            "rank 0 on node 'n0': killed by signal 11 (SIGSEGV); no restart is left "
            "(restart.max_restarts: 2)");
}

TEST(Life, AnInterruptionIsNoRestart) {
  Job job = Running(2, 0);
  EXPECT_EQ(OnInterrupted(&job, "node 'n0' is drained", At(1)), (RanksToEnd{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(15), kTimeouts, At(1));
  EXPECT_EQ(job.state(), State::kRecovering);
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
  OnFailureReport(&job, 0, {.reason = "rank 1: connection closed by peer", .consequence = true},
                  kTimeouts, At(1));
  OnExit(&job, 0, Code(1), kTimeouts, At(1));
  // A new agent found the process's leftovers. The former agent killed the process, and is gone.
  Exit lost = Signal(9);
  lost.why = Exit::Why::kNodeFault;
  OnExit(&job, 1, lost, kTimeouts, At(60));
  EXPECT_EQ(RootCause(job.failures)->root.reason, "ended with its agent");
  EXPECT_EQ(EndOf(job), End::kNodeFault);
  EXPECT_EQ(job.state(), State::kRecovering) << "no restart is used";
}

TEST(PlannedEnd, IsNoFailureAndUsesNoRestart) {
  for (const auto& [why, reason] : std::vector<std::pair<Exit::Why, std::string>>{
           {Exit::Why::kAgentStopped, "the agent of node 'n1' was stopped"},
           {Exit::Why::kDrained, "node 'n1' is drained"},
           {Exit::Why::kLeaseOver,
            "node 'n1' heard nothing from the coordinator for a whole lease"},
           {Exit::Why::kStoppedAsTold, "a process on node 'n1' was stopped"}}) {
    Job job = Running(2, 0);
    EXPECT_EQ(OnExit(&job, 1, Planned(why), kTimeouts, At(1)), (RanksToEnd{0}));
    EXPECT_EQ(job.state(), State::kRecovering);
    OnExit(&job, 0, Signal(15), kTimeouts, At(2));
    EXPECT_EQ(job.state(), State::kRecovering);
    EXPECT_EQ(job.state_reason, reason + "; waits for slots");
    EXPECT_TRUE(job.failures.empty());
    EXPECT_EQ(job.not_before(), absl::InfinitePast());
    StartGeneration(&job, Ranks(job), At(3));
    EXPECT_EQ(job.restarts, 0);
    EXPECT_EQ(job.interruption(), "");
  }
}

// The coordinator gives a process up. It hears later that the process's node had lost the
// coordinator.
TEST(PlannedEnd, ALeaseThatIsOverExplainsTheSilenceBeforeItButNoHang) {
  for (const bool hung : {false, true}) {
    Job job = Running(2, 1);
    Loss loss{"was silent for 20s"};
    if (hung) loss = {"made no progress for 5m", {"rank 1: number 7, all-gather, not ended"}};
    EXPECT_EQ(OnLost(&job, 1, loss, At(1)), (RanksToEnd{0, 1}));
    OnExit(&job, 1, Planned(Exit::Why::kLeaseOver), kTimeouts, At(2));
    OnExit(&job, 0, Signal(15), kTimeouts, At(3));
    EXPECT_EQ(job.failures.empty(), !hung);
    StartGeneration(&job, Ranks(job), At(4));
    EXPECT_EQ(job.restarts, hung ? 1 : 0);
  }
}

TEST(PlannedEnd, WhatFollowedFromItIsNoFailureWhicheverComesFirst) {
  for (const bool first : {true, false}) {
    Job job = Running(2, 0);
    if (first) OnExit(&job, 1, Planned(Exit::Why::kAgentStopped), kTimeouts, At(1));
    OnFailureReport(&job, 0, {.reason = "rank 1 is gone", .consequence = true}, kTimeouts, At(1));
    if (!first) OnExit(&job, 1, Planned(Exit::Why::kAgentStopped), kTimeouts, At(1));
    OnExit(&job, 0, Code(1), kTimeouts, At(2));
    EXPECT_EQ(job.state(), State::kRecovering) << first;
    EXPECT_TRUE(job.failures.empty());
  }
}

TEST(PlannedEnd, AFailureOfTheJobBesideItCounts) {
  Job job = Running(3, 1);
  OnExit(&job, 1, Planned(Exit::Why::kDrained), kTimeouts, At(1));
  OnExit(&job, 0, Signal(11), kTimeouts, At(1));
  OnExit(&job, 2, Signal(15), kTimeouts, At(1));
  EXPECT_EQ(EndOf(job), End::kFailed);
  StartGeneration(&job, Ranks(job), At(2));
  EXPECT_EQ(job.restarts, 1);
}

TEST(NodeFault, CostsNoRestartButTime) {
  Job job = NewJob(1, 0);
  absl::Duration wait;
  for (int failure = 0; failure < 40; ++failure) {
    StartGeneration(&job, Ranks(job), At(failure));
    OnExit(&job, 0, {.cause = Exit::Cause::kStartError, .start_error = "no such program"},
           kTimeouts, At(failure));
    ASSERT_EQ(job.state(), State::kRecovering);
    EXPECT_EQ(EndOf(job), End::kNodeFault);
    wait = failure == 0 ? absl::ZeroDuration() : job.not_before() - At(failure);
    EXPECT_GE(wait, failure == 0 ? absl::ZeroDuration() : absl::Milliseconds(500)) << failure;
  }
  EXPECT_GE(wait, absl::Seconds(150));
  EXPECT_LE(wait, absl::Minutes(5));
  EXPECT_EQ(job.restarts, 0);
  EXPECT_THAT(job.state_reason,
              testing::HasSubstr("could not be started: no such program; starts again at "));
}

TEST(NodeFault, AWorkerThatEndsBeforeItsFirstMessageIsTheNodesFault) {
  for (const bool attached : {false, true}) {
    Job job = NewJob(1, 0);
    StartGeneration(&job, Ranks(job), At(0));
    if (attached) OnAttached(&job, 0);
    OnExit(&job, 0, Code(127), kTimeouts, At(1));
    EXPECT_EQ(job.state(), attached ? State::kFailed : State::kRecovering);
  }
}

TEST(NodeFault, AWorkerMaySayItAndAnAgentsLossIsOne) {
  Job job = Running(1, 0);
  OnFailureReport(&job, 0,
                  {.reason = "/data is not mounted", .permanent = true, .node_fault = true},
                  kTimeouts, At(1));
  OnExit(&job, 0, Code(1), kTimeouts, At(1));
  EXPECT_EQ(EndOf(job), End::kNodeFault);
  EXPECT_EQ(job.state(), State::kRecovering);
  Job lost = Running(1, 0);
  OnLost(&lost, 0, {"was silent"}, At(1));
  OnGone(&lost, 0, "the agent was silent", At(2));
  EXPECT_EQ(lost.state(), State::kRecovering);
  EXPECT_EQ(RootCause(lost.failures)->root.reason, "the agent was silent");
}

TEST(Budget, AnotherCheckpointRefillsIt) {
  Job job = Running(1, 1);
  const auto fail = [&] {
    OnExit(&job, 0, Signal(11), kTimeouts, At(1));
    return job.state();
  };
  job.checkpoints.push_back({.step = 10});
  EXPECT_EQ(fail(), State::kRecovering);
  EXPECT_EQ(job.not_before(), absl::InfinitePast()) << "the first restart is at once";
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
    EXPECT_EQ(job.not_before(), absl::InfinitePast());
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
    OnExit(&job, 0, Signal(11), kTimeouts, At(1));
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
  EXPECT_EQ(job.state(), State::kFailed);
}

TEST(Budget, TheStepAtWhichARankFailedIsTheOneThatItSays) {
  Job job = Running(1, 1);
  job.step = 7;  // The eighth step was not reported.
  OnFailureReport(&job, 0, {.step = 8, .reason = "boom"}, kTimeouts, At(1));
  OnExit(&job, 0, Signal(11), kTimeouts, At(1));
  StartGeneration(&job, Ranks(job), At(2));
  Begin(&job);
  job.step = 8;
  OnStep(&job);
  EXPECT_EQ(job.restarts_used, 1) << "it was as far before";
  job.step = 9;
  OnStep(&job);
  EXPECT_EQ(job.restarts_used, 0);
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

}  // namespace
}  // namespace muster::jobs
