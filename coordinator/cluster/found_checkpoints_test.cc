// Reports of rank 0 about the job's checkpoint folder: what was found, what cannot be read, and
// where a generation starts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/saved_job_fixture.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

using FoundCheckpointsTest = SavedJobTest;

TEST_F(FoundCheckpointsTest, AJobWhoseCheckpointsCannotBeReadHaltsWithoutProcessesSlotsOrARestart) {
  Halt();
  EXPECT_EQ(job().state(), jobs::State::kPaused);
  EXPECT_EQ(job().reason_code, "CHECKPOINTS_UNREADABLE");
  for (const char* part :
       {"none can be read in /ckpt/job", "`muster resume job`", "--from DIR", "--from-scratch"}) {
    EXPECT_NE(job().state_reason.find(part), std::string::npos) << job().state_reason;
  }
  EXPECT_FALSE(job().live());
  EXPECT_EQ(job().restarts, 0u);
  EXPECT_TRUE(job().failures.empty());
  EXPECT_EQ(world_.cluster().overview().OfferedSlots(jobs::Device::kCpu).free(), 2u);
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{10, 5}));
  // Time, other agents, or a new coordinator do not start the job.
  world_.Pass(100);
  Restart();
  EXPECT_EQ(job().state(), jobs::State::kPaused);
  EXPECT_EQ(job().reason_code, "CHECKPOINTS_UNREADABLE");
  EXPECT_EQ(job().generation, 1u);
}

// The ranks' reports come in any order.
TEST_F(FoundCheckpointsTest, AConsequenceThatIsToldFirstDoesNotHideThatTheJobHalts) {
  Report({.sequence = 2,
          .what = jobs::ReportedFailure{.reason = "rank 0 is gone", .consequence = true}},
         11);
  Halt();
  EXPECT_EQ(job().reason_code, "CHECKPOINTS_UNREADABLE");
  EXPECT_EQ(job().restarts, 0u);
}

TEST_F(FoundCheckpointsTest, ResumeLooksAgainAtOnce) {
  Halt();
  const auto number = Resume();
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_TRUE(job().commands.Find(*number)->outcome.has_value());
  EXPECT_EQ(job().generation, 2u);
  EXPECT_EQ(job().state(), jobs::State::kStarting);
  EXPECT_EQ(job().restarts, 0u);
  EXPECT_EQ(job().reason_code, "");
  EXPECT_EQ(AttachAll()[0].checkpoints.size(), 2u);
}

TEST_F(FoundCheckpointsTest, AHaltedJobIsPausedAlreadyAndStopsAtOnce) {
  Halt();
  EXPECT_EQ(RefusalReason(world_.Command("job", {.kind = v1::Operation::PAUSE}).status()),
            "JOB_ALREADY_PAUSED");
  ASSERT_TRUE(world_.Stop("job").ok());
  EXPECT_EQ(job().state(), jobs::State::kCancelled);
  EXPECT_TRUE(world_.Delete("job").ok());
}

TEST_F(FoundCheckpointsTest, AStopThatCameBeforeTheHaltWins) {
  ASSERT_TRUE(world_.Stop("job").ok());
  Halt();
  EXPECT_EQ(job().state(), jobs::State::kCancelled);
}

TEST_F(FoundCheckpointsTest, FromScratchKeepsWhatWasRecordedAndIsForgottenOnceTheSessionStands) {
  Halt();
  ASSERT_TRUE(Resume(/*from_scratch=*/true).ok());
  world_.Restart();  // the decision is durable
  ASSERT_TRUE(world_.Attach(1, {.node = "a", .incarnation = "a", .host = "a", .slots = 2}).ok());
  const auto welcomes = AttachAll();
  for (const WelcomeWorker& welcome : welcomes) {
    EXPECT_TRUE(welcome.from_scratch);
    EXPECT_TRUE(welcome.checkpoints.empty());
    EXPECT_EQ(Steps(welcome.known_checkpoints), (StepList{5, 10}));
  }
  Report({.sequence = 1, .what = SessionStarted{}}, rank0());
  EXPECT_FALSE(job().from_scratch);
  EXPECT_EQ(job().step, 0u);
  EXPECT_EQ(Steps(job().found_checkpoints), (StepList{5, 10}));
  EXPECT_TRUE(job().dropped_checkpoints.empty());
}

TEST_F(FoundCheckpointsTest, ADirectoryIsWhereTheJobStartsUntilItHasACheckpointOfItsOwn) {
  Halt();
  ASSERT_TRUE(Resume(false, "/backup/step-10-g1").ok());
  EXPECT_EQ(AttachAll()[0].start_from, "/backup/step-10-g1");
  Report({.sequence = 1, .what = SessionStarted{10, "/backup/step-10-g1", 0}}, rank0());
  EXPECT_EQ(job().start_from, "/backup/step-10-g1");
  Report({.sequence = 2, .what = CheckpointWritten{15, Path(15, 2)}}, rank0());
  EXPECT_EQ(job().start_from, "");
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{15}));
}

// The decision survives when a folder is not mounted for a while.
TEST_F(FoundCheckpointsTest, ADirectoryThatCannotBeReadIsLookedAtAgainByAPlainResume) {
  Halt();
  const auto halt_at_the_start = [&] {
    for (const WelcomeWorker& welcome : AttachAll()) {
      EXPECT_EQ(welcome.start_from, "/not-mounted");
      EXPECT_TRUE(welcome.checkpoints.empty());
    }
    Report({.sequence = 1,
            .what = jobs::ReportedFailure{.reason = "it cannot be read: /not-mounted",
                                          .permanent = true,
                                          .checkpoints_unreadable = true}},
           rank0());
    ExitAll();
    ASSERT_TRUE(job().halted()) << job().state_reason;
    EXPECT_EQ(job().start_from, "/not-mounted");
  };
  ASSERT_TRUE(Resume(false, "/not-mounted").ok());
  halt_at_the_start();
  for (const std::string& part : {std::string("`muster resume job` tries again"),
                                  absl::StrCat("`muster resume job --from ", Path(10, 1), "`"),
                                  std::string("--from-scratch")}) {
    EXPECT_NE(job().state_reason.find(part), std::string::npos) << job().state_reason;
  }
  Restart();
  ASSERT_TRUE(Resume().ok());
  halt_at_the_start();
  for (const jobs::JobEvent& event : job().events) EXPECT_NE(event.reason, "START_TAKEN_BACK");
  // The resume that the reason proposes.
  ASSERT_TRUE(Resume(false, Path(10, 1)).ok());
  for (const WelcomeWorker& welcome : AttachAll()) {
    EXPECT_EQ(welcome.start_from, Path(10, 1));
    EXPECT_EQ(Steps(welcome.checkpoints), StepList{10});
  }
}

TEST_F(FoundCheckpointsTest, AFailureThatIsNotTheDirectorysLeavesTheDecisionInForce) {
  Halt();
  ASSERT_TRUE(Resume(false, "/backup/step-10-g1").ok());
  AttachAll();
  Report({.sequence = 1,
          .what = jobs::ReportedFailure{.reason = "no room for the model", .permanent = true}},
         rank0());
  ExitAll();
  ASSERT_EQ(job().state(), jobs::State::kFailed);
  EXPECT_EQ(job().start_from, "/backup/step-10-g1");
  ASSERT_TRUE(Resume().ok());
  for (const WelcomeWorker& welcome : AttachAll()) {
    EXPECT_EQ(welcome.start_from, "/backup/step-10-g1");
  }
}

TEST_F(FoundCheckpointsTest,
       AfterADirectoryThatDoesNotFitAPlainRetryGoesOnFromTheFormerNewestCheckpoint) {
  Halt();
  ASSERT_TRUE(Resume(false, "/wrong").ok());
  for (const WelcomeWorker& welcome : AttachAll()) EXPECT_TRUE(welcome.checkpoints.empty());
  Report({.sequence = 1,
          .what = jobs::ReportedFailure{.reason = "it is another model's",
                                        .permanent = true,
                                        .code = "START_DOES_NOT_FIT"}},
         rank0());
  ExitAll();
  ASSERT_EQ(job().state(), jobs::State::kFailed);
  EXPECT_EQ(job().reason_code, "START_DOES_NOT_FIT");
  EXPECT_EQ(job().start_from, "");
  EXPECT_EQ(job().events.back().reason, "START_TAKEN_BACK");
  Restart();
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{10, 5})) << "it is stored";
  EXPECT_TRUE(job().found_checkpoints.empty());
  ASSERT_TRUE(Resume().ok());
  for (const WelcomeWorker& welcome : AttachAll()) {
    EXPECT_EQ(welcome.start_from, "");
    EXPECT_EQ(Steps(welcome.checkpoints), (StepList{10, 5}));
  }
}

TEST_F(FoundCheckpointsTest, ADirectoryThatARankHasStartedFromStaysWhereTheJobStarts) {
  Halt();
  ASSERT_TRUE(Resume(false, "/backup/step-10-g1").ok());
  AttachAll();
  Report({.sequence = 1, .what = SessionStarted{10, "/backup/step-10-g1", 0}}, rank0() + 1);
  Report({.sequence = 1, .what = jobs::ReportedFailure{.reason = "out of luck", .permanent = true}},
         rank0());
  ExitAll();
  EXPECT_EQ(job().state(), jobs::State::kFailed);
  EXPECT_EQ(job().start_from, "/backup/step-10-g1");
  EXPECT_TRUE(jobs::Usable(job()).empty());
}

TEST_F(FoundCheckpointsTest, StartsThatMakeNoSenseAreRefused) {
  EXPECT_EQ(RefusalReason(Resume(true).status()), "START_INVALID");  // the job runs
  EXPECT_EQ(RefusalReason(Resume(false, "/x").status()), "START_INVALID");
  Halt();
  EXPECT_EQ(RefusalReason(Resume(true, "/x").status()), "START_INVALID");
  EXPECT_EQ(RefusalReason(Resume(false, "x").status()), "START_INVALID");
  EXPECT_EQ(job().state(), jobs::State::kPaused);
}

TEST_F(FoundCheckpointsTest, WhatContinuesTheCourseCountsAndTheRestIsKept) {
  world_.Exit(1, job().Worker(1), 9);
  world_.Exit(1, job().Worker(0), 15);
  AttachAll();
  Report(
      {.sequence = 1,
       .what =
           CheckpointsFound{{{.step = 15, .generation = 1, .path = Path(15, 1), .adopted = true},
                             {.step = 7, .generation = 1, .path = Path(7, 1), .reason = "older"}}}},
      rank0());
  Report({.sequence = 2, .what = SessionStarted{15, Path(15, 1), 0}}, rank0());
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{15, 10, 5}));
  EXPECT_EQ(job().checkpoints.back().origin, jobs::Origin::kAdopted);
  ASSERT_EQ(job().found_checkpoints.size(), 1u);
  EXPECT_EQ(job().found_checkpoints[0].origin_reason, "older");
  EXPECT_EQ(job().events[0].reason, "CHECKPOINT_ADOPTED");
  world_.Restart();
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{15, 10, 5}));
  EXPECT_EQ(Steps(job().found_checkpoints), (StepList{7}));
}

TEST_F(FoundCheckpointsTest, OnlyRank0SpeaksForTheFolder) {
  Report({.sequence = 2, .what = CheckpointWritten{15, Path(15, 1)}}, 11);
  Report(
      {.sequence = 3,
       .what =
           CheckpointsFound{{{.step = 15, .generation = 0, .path = Path(15, 0), .adopted = true}}}},
      11);
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{10, 5}));
}

TEST_F(FoundCheckpointsTest, WhatAGenerationCouldNotReadDoesNotComeBack) {
  world_.Exit(1, job().Worker(1), 9);
  world_.Exit(1, job().Worker(0), 15);
  AttachAll();
  Report({.sequence = 1, .what = SessionStarted{5, Path(5, 1), 0}}, rank0());
  EXPECT_EQ(Steps(jobs::Usable(job())), (StepList{5}));
  EXPECT_EQ(Steps(job().found_checkpoints), (StepList{10}));
}

// A checkpoint of generation 1 that is the best.
CheckpointWritten BestWritten(uint64_t step) {
  CheckpointWritten written{step, Path(step, 1)};
  written.best = true;
  return written;
}

TEST_F(FoundCheckpointsTest, TheBestOneStaysAndIsKnownAfterARestart) {
  Report({.sequence = 4, .what = BestWritten(15)});
  for (const uint64_t step : {20, 25, 30}) {
    Report({.sequence = step / 5 + 1, .what = CheckpointWritten{step, Path(step, 1)}});
  }
  EXPECT_EQ(Steps(job().checkpoints), (StepList{15, 20, 25, 30}));
  Restart();
  EXPECT_TRUE(job().checkpoints[0].best);
  EXPECT_FALSE(job().checkpoints[1].best);
}

// The best checkpoint may be of an earlier generation, and need not count.
TEST_F(FoundCheckpointsTest, ASessionTellsWhichOneIsTheBest) {
  Halt();
  ASSERT_TRUE(Resume(false, "/backup/step-10-g1").ok());
  AttachAll();
  Report({.sequence = 1, .what = BestWritten(5)}, rank0());
  EXPECT_EQ(job().start_from, "/backup/step-10-g1");
  EXPECT_TRUE(jobs::Usable(job()).empty());
  EXPECT_TRUE(job().found_checkpoints[0].best);
  EXPECT_FALSE(job().found_checkpoints[1].best);
  for (const jobs::JobEvent& event : job().events) EXPECT_NE(event.reason, "CHECKPOINT_REFUSED");
}

TEST_F(FoundCheckpointsTest, RemovalIsToldUntilItIsDone) {
  Report({.sequence = 4, .what = CheckpointWritten{15, Path(15, 1)}});
  Report({.sequence = 5, .what = CheckpointWritten{20, Path(20, 1)}});
  EXPECT_EQ(job().dropped_checkpoints, (std::vector<std::string>{Path(5, 1)}));
  world_.Exit(1, job().Worker(1), 9);
  world_.Exit(1, job().Worker(0), 15);
  const auto welcomes = AttachAll();
  // The path must be known to the workers, so that rank 0 does not take it for an unknown
  // checkpoint.
  EXPECT_EQ(welcomes[0].known_checkpoints[0].path, Path(5, 1));
  EXPECT_EQ(welcomes[0].known_checkpoints[0].generation, 0u) << "told apart from one that stays";
  const auto told = world_.Orders<SendToWorker, CheckpointRecorded>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].remove, (std::vector<std::string>{Path(5, 1)}));
  Report({.sequence = 1, .what = CheckpointsRemoved{{"step-5-g1"}}}, rank0());
  EXPECT_TRUE(job().dropped_checkpoints.empty());
}

}  // namespace
}  // namespace muster::cluster
