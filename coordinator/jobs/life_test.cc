#include "coordinator/jobs/life.h"

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

Job Running(uint32_t world_size = 2, uint32_t max_restarts = 1) {
  Job job = NewJob(world_size, max_restarts);
  StartGeneration(&job, Ranks(job), At(0));
  for (uint32_t rank = 0; rank < world_size; ++rank) OnSessionStarted(&job, rank, 0);
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
  OnFinished(&job, 0, kPatience, At(2));
  EXPECT_TRUE(OnExit(&job, 0, Code(0), kPatience, At(2)).empty());
  EXPECT_EQ(job.state, State::kRunning);
  OnFinished(&job, 1, kPatience, At(3));
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
  OnFinished(&job, 0, kPatience, At(1));
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
  OnFinished(&job, 0, kPatience, At(1));
  OnExit(&job, 0, Code(0), kPatience, At(2));
  EXPECT_EQ(job.state, State::kCancelled);
  EXPECT_EQ(job.reason_code, "SAVE_FAILED");
  EXPECT_EQ(job.state_reason,
            "stopped as asked, but its last save failed: No space left on device; no checkpoint is kept");
}

TEST(Life, WhyTrainingEndedEarlyIsTheReasonOfTheEnd) {
  Job job = Running(1);
  job.ended_early = "rank 1 has run out";
  OnFinished(&job, 0, kPatience, At(1));
  OnExit(&job, 0, Code(0), kPatience, At(2));
  EXPECT_EQ(job.state, State::kSucceeded);
  EXPECT_EQ(job.state_reason, "rank 1 has run out");
}

TEST(Life, AnExitBeforeTheWorkIsDoneEndsTheGeneration) {
  for (const Exit& exit : {Code(0), Code(1), Signal(9),
                           Exit{.cause = Exit::Cause::kStartError, .start_error = "no memory"}}) {
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
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, kPatience, At(1));
  OnGone(&job, 0, "agent lost", At(2));
  OnExit(&job, 1, Signal(11), kPatience, At(2));
  EXPECT_EQ(job.state, State::kSucceeded);
}

TEST(Life, ProcessesThatHangAtTheirExitAreEndedAndTheJobSucceeds) {
  Job job = Running();
  for (uint32_t rank : {0, 1}) OnFinished(&job, rank, kPatience, At(1));
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
  EXPECT_EQ(OnInterrupted(&job, At(1)), (Ended{0, 1}));
  for (uint32_t rank : {0, 1}) OnExit(&job, rank, Signal(15), kPatience, At(1));
  EXPECT_EQ(job.state, State::kRecovering);
  StartGeneration(&job, Ranks(job), At(2));
  EXPECT_EQ(job.generation, 2);
  EXPECT_EQ(job.restarts, 0);
  EXPECT_TRUE(job.failures.empty());
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
    OnFinished(&job, rank, kPatience, At(3));
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
      switch (pick(14)) {
        case 0:
        case 1:
          StartGeneration(&job, Ranks(job), At(now));
          EXPECT_EQ(job.generation, before.generation + (could_start ? 1 : 0));
          break;
        case 2:
        case 3:
          OnSessionStarted(&job, rank, pick(10));
          break;
        case 4:
        case 5:
          OnFinished(&job, rank, kPatience, At(now));
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
          if (pick(4) == 0) OnInterrupted(&job, At(now));
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
      ASSERT_LE(job.restarts, job.plan.max_restarts);
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
