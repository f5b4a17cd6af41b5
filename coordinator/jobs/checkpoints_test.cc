#include "coordinator/jobs/checkpoints.h"

#include <gtest/gtest.h>

namespace muster::jobs {
namespace {

Checkpoint At(uint64_t step, uint64_t generation = 1) {
  return {.step = step,
          .generation = generation,
          .path = "step-" + std::to_string(step) + "-g" + std::to_string(generation)};
}

std::vector<uint64_t> Steps(const std::vector<Checkpoint>& checkpoints) {
  std::vector<uint64_t> steps;
  for (const Checkpoint& checkpoint : checkpoints) steps.push_back(checkpoint.step);
  return steps;
}

using StepList = std::vector<uint64_t>;
using Names = std::vector<std::string>;

Checkpoint FoundAt(uint64_t step, uint64_t generation, const std::string& reason) {
  Checkpoint checkpoint = At(step, generation);
  checkpoint.origin_reason = reason;
  return checkpoint;
}

TEST(Checkpoints, TheOldestBeyondKeepAreDropped) {
  Job job;
  job.plan.keep_checkpoints = 2;
  RecordCheckpoint(&job, At(10));
  RecordCheckpoint(&job, At(20));
  EXPECT_TRUE(job.dropped_checkpoints.empty());
  RecordCheckpoint(&job, At(30));
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-10-g1"}));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{20, 30}));
  EXPECT_EQ(Steps(Usable(job)), (StepList{30, 20}));
}

TEST(Checkpoints, ARepeatChangesNothing) {
  Job job;
  job.plan.keep_checkpoints = 1;
  RecordCheckpoint(&job, At(10));
  RecordCheckpoint(&job, At(20));
  RecordCheckpoint(&job, At(20));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{20}));
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-10-g1"}));
}

TEST(Checkpoints, ADamagedOneIsNotUsedAndDoesNotPushGoodOnesOut) {
  Job job;
  job.plan.keep_checkpoints = 2;
  RecordCheckpoint(&job, At(10));
  RecordCheckpoint(&job, At(20));
  EXPECT_TRUE(MarkBad(&job, "step-20-g1", "hash differs"));
  EXPECT_FALSE(MarkBad(&job, "step-99-g1", "?"));
  EXPECT_EQ(Steps(Usable(job)), (StepList{10}));
  RecordCheckpoint(&job, At(20, 2));
  EXPECT_TRUE(job.dropped_checkpoints.empty());
  EXPECT_EQ(Steps(Usable(job)), (StepList{20, 10}));
  // The damaged checkpoint goes, with its files untouched, when it is older than all that stay.
  RecordCheckpoint(&job, At(30, 2));
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-10-g1"}));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{20, 30}));
}

TEST(Checkpoints, OfTheSameStepTheNewerGenerationIsTheNewer) {
  Job job;
  RecordCheckpoint(&job, At(20, 2));
  RecordCheckpoint(&job, At(20, 1));
  EXPECT_EQ(Usable(job)[0].generation, 2);
}

TEST(Checkpoints, WhatIsDroppedIsNamedUntilItIsGone) {
  Job job;
  job.plan.keep_checkpoints = 1;
  for (const uint64_t step : {10, 20, 30}) RecordCheckpoint(&job, At(step));
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-10-g1", "step-20-g1"}));
  EXPECT_EQ(NotUsable(job).size(), 2u);
  Removed(&job, {"step-10-g1"});
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-20-g1"}));
}

Checkpoint BestAt(uint64_t step, uint64_t generation = 1) {
  Checkpoint checkpoint = At(step, generation);
  checkpoint.best = true;
  return checkpoint;
}

TEST(Checkpoints, TheBestOneStaysBesideTheNewest) {
  Job job;
  job.plan.keep_checkpoints = 2;
  RecordCheckpoint(&job, BestAt(10));
  for (const uint64_t step : {20, 30, 40}) RecordCheckpoint(&job, At(step));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{10, 30, 40}));
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-20-g1"}));
  // A better checkpoint lets the former best be dropped, unless it is among the newest.
  RecordCheckpoint(&job, BestAt(50));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{40, 50}));
  RecordCheckpoint(&job, BestAt(60));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{50, 60}));
  RecordCheckpoint(&job, At(70));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{60, 70}));
  RecordCheckpoint(&job, At(80, 2));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{60, 70, 80})) << "of any generation";
}

TEST(Checkpoints, WhereTheBestOneIsDamagedTheOneBeforeItStaysIfItIsStillThere) {
  Job job;
  job.plan.keep_checkpoints = 2;
  for (const uint64_t step : {10, 20}) RecordCheckpoint(&job, BestAt(step));
  MarkBad(&job, "step-20-g1", "hash differs");
  for (const uint64_t step : {30, 40}) RecordCheckpoint(&job, At(step));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{10, 30, 40}));
  EXPECT_EQ(job.dropped_checkpoints, Names({}));
}

// A found checkpoint does not say that it is the best; the session that starts does.
TEST(Checkpoints, OneThatIsKnownBecomesTheBestOne) {
  Job job;
  job.plan.keep_checkpoints = 1;
  EXPECT_FALSE(MarkBest(&job, "step-10-g1"));
  RecordCheckpoint(&job, BestAt(5));
  Adopt(&job, {At(10), At(20)});
  EXPECT_EQ(Steps(job.checkpoints), (StepList{5, 10, 20}));
  EXPECT_TRUE(MarkBest(&job, "step-10-g1"));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{10, 20}));
  RecordCheckpoint(&job, At(30, 2));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{10, 30}));
  // MarkBest of a checkpoint that does not count is recorded and changes nothing else.
  DecideStart(&job, false, "/elsewhere");
  EXPECT_TRUE(MarkBest(&job, "step-30-g2"));
  EXPECT_TRUE(Usable(job).empty());
  EXPECT_TRUE(job.found_checkpoints.back().best);
  EXPECT_EQ(job.start_from, "/elsewhere");
}

TEST(Checkpoints, OnlyTheJobsOwnFolderHoldsItsCheckpoints) {
  Job job;
  job.id = "job";
  job.plan.checkpoint_directory = "/ckpt/";
  const auto ok = [&](const std::string& path) {
    return CheckPath(job, {.step = 10, .generation = 2, .path = path}).ok();
  };
  EXPECT_TRUE(ok("/ckpt/job/step-10-g2"));
  for (const char* path : {"/ckpt/job/step-10-g1", "/ckpt/job/step-11-g2",
                           "/ckpt/job/../other/step-10-g2", "/ckpt/other/step-10-g2", "/etc", "",
                           "step-10-g2", "/ckpt/job/step-10-g2/", "/ckpt/job/step-10-g2.tmp"}) {
    EXPECT_FALSE(ok(path)) << path;
  }
}

// The database was restored. The folder's checkpoints count, and none is removed because it was
// found.
TEST(Checkpoints, AdoptedOnesCountAndDropOnlyThoseThatCountedBefore) {
  Job job;
  job.plan.keep_checkpoints = 2;
  for (const uint64_t step : {45, 50}) RecordCheckpoint(&job, At(step));
  Keep(&job, FoundAt(185, 3, "not verified"));
  Adopt(&job, {At(185, 3), At(190, 3), At(195, 3)});
  EXPECT_EQ(Steps(Usable(job)), (StepList{195, 190, 185}));
  EXPECT_EQ(job.checkpoints[0].origin, Origin::kAdopted);
  EXPECT_TRUE(job.found_checkpoints.empty());
  EXPECT_EQ(job.dropped_checkpoints, Names({"step-45-g1", "step-50-g1"}));
  RecordCheckpoint(&job, At(200, 4));
  EXPECT_EQ(Steps(Usable(job)), (StepList{200, 195}));
}

TEST(Checkpoints, ADamagedOneThatIsWholeAgainCounts) {
  Job job;
  RecordCheckpoint(&job, At(10));
  MarkBad(&job, "step-10-g1", "hash differs");
  EXPECT_TRUE(Usable(job).empty());
  EXPECT_EQ(NotUsable(job)[0].bad_reason, "hash differs");
  Adopt(&job, {At(10)});
  EXPECT_EQ(Steps(Usable(job)), (StepList{10}));
}

TEST(Checkpoints, WhatIsRecordedIsNotKeptASecondTime) {
  Job job;
  for (const uint64_t step : {10, 20}) RecordCheckpoint(&job, At(step));
  MarkBad(&job, "step-10-g1", "hash differs");
  Keep(&job, FoundAt(10, 1, "damaged"));
  Keep(&job, FoundAt(20, 1, "it could not be read"));
  EXPECT_TRUE(job.found_checkpoints.empty());
  EXPECT_EQ(Steps(job.checkpoints), (StepList{10, 20}));
}

// Without them a job without a good checkpoint would look like a job that never had any.
TEST(Checkpoints, DamagedOnesAreKnownWhileThereIsNoGoodOne) {
  Job job;
  job.plan.keep_checkpoints = 1;
  RecordCheckpoint(&job, At(10));
  MarkBad(&job, "step-10-g1", "hash differs");
  Adopt(&job, {});
  EXPECT_EQ(job.checkpoints.size(), 1u);
}

TEST(Checkpoints, WhatAGenerationCouldNotReadIsKeptAndDoesNotCountAnyMore) {
  Job job;
  job.generation = 3;
  for (const uint64_t step : {10, 20, 30}) RecordCheckpoint(&job, At(step));
  EXPECT_TRUE(WentOnFrom(&job, "").empty());
  EXPECT_TRUE(WentOnFrom(&job, "step-30-g1").empty());
  EXPECT_EQ(WentOnFrom(&job, "step-10-g1"), Names({"step-20-g1", "step-30-g1"}));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{10}));
  EXPECT_EQ(Steps(job.found_checkpoints), (StepList{20, 30}));
  EXPECT_EQ(job.found_checkpoints[0].origin, Origin::kFound);
  EXPECT_EQ(job.found_checkpoints[0].origin_reason,
            "generation 3 could not read it and continued from step 10");
  EXPECT_TRUE(job.dropped_checkpoints.empty());
}

TEST(Checkpoints, StartingFromScratchKeepsWhatWasRecorded) {
  Job job;
  for (const uint64_t step : {10, 20}) RecordCheckpoint(&job, At(step));
  MarkBad(&job, "step-10-g1", "hash differs");
  job.step = 25;
  DecideStart(&job, /*from_scratch=*/true, "");
  EXPECT_TRUE(job.checkpoints.empty());
  EXPECT_EQ(Steps(job.found_checkpoints), (StepList{20}));
  EXPECT_EQ(job.step, 0u);
  EXPECT_TRUE(job.from_scratch);
}

TEST(Checkpoints, ADirectoryThatSomebodyNamedIsWhereTheJobStartsUntilItHasOneOfItsOwn) {
  Job job;
  for (const uint64_t step : {10, 20}) RecordCheckpoint(&job, At(step));
  DecideStart(&job, false, "/elsewhere");
  EXPECT_EQ(job.start_from, "/elsewhere");
  EXPECT_TRUE(Usable(job).empty());
  EXPECT_EQ(Steps(job.found_checkpoints), (StepList{10, 20}));
  RecordCheckpoint(&job, At(15, 2));
  EXPECT_EQ(job.start_from, "");
  DecideStart(&job, false, "");
  EXPECT_EQ(Steps(Usable(job)), (StepList{15}));
}

TEST(Checkpoints, ADecisionThatCannotBeStartedFromIsTakenBack) {
  Job job;
  for (const uint64_t step : {5, 10, 20}) RecordCheckpoint(&job, At(step));
  MarkBad(&job, "step-5-g1", "hash differs");
  Keep(&job, FoundAt(7, 1, "older"));
  // A worker found this checkpoint in the folder. An unverified checkpoint must not count.
  Keep(&job, FoundAt(30, 2, "the job was told to continue from /wrong"));
  DecideStart(&job, false, "/wrong");
  EXPECT_TRUE(Usable(job).empty());
  ASSERT_NE(NewestBeforeStart(job), nullptr);
  EXPECT_EQ(NewestBeforeStart(job)->step, 20u);
  EXPECT_TRUE(TakeBackStart(&job));
  EXPECT_EQ(NewestBeforeStart(job), nullptr);
  EXPECT_EQ(job.start_from, "");
  EXPECT_EQ(Steps(Usable(job)), (StepList{20, 10}));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{5, 10, 20})) << "the damaged one is known, too";
  EXPECT_EQ(job.checkpoints[2].origin, Origin::kRecorded);
  EXPECT_EQ(job.checkpoints[2].origin_reason, "");
  EXPECT_EQ(Steps(job.found_checkpoints), (StepList{7, 30}));
  EXPECT_FALSE(TakeBackStart(&job));
}

TEST(Checkpoints, ADecisionThatWasStartedFromStands) {
  Job job;
  RecordCheckpoint(&job, At(10));
  DecideStart(&job, false, "/right");
  EXPECT_TRUE(SettleStart(&job));
  EXPECT_FALSE(SettleStart(&job));
  EXPECT_EQ(NewestBeforeStart(job), nullptr);
  EXPECT_EQ(job.found_checkpoints[0].origin_reason, "the job was told to continue from /right");
  EXPECT_FALSE(TakeBackStart(&job));
  EXPECT_EQ(job.start_from, "/right");
  EXPECT_TRUE(Usable(job).empty());
}

// Otherwise the job would start again from step 0, which nobody asked for.
TEST(Checkpoints, WhereNothingCountedBeforeTheDecisionStands) {
  Job job;
  DecideStart(&job, false, "/wrong");
  EXPECT_FALSE(TakeBackStart(&job));
  EXPECT_EQ(job.start_from, "/wrong");
}

TEST(Checkpoints, ASecondDecisionTakesThePlaceOfOneThatWasNeverTried) {
  Job job;
  for (const uint64_t step : {10, 20}) RecordCheckpoint(&job, At(step));
  DecideStart(&job, false, "/first");
  DecideStart(&job, false, "/second");
  EXPECT_EQ(job.start_from, "/second");
  EXPECT_TRUE(TakeBackStart(&job));
  EXPECT_EQ(Steps(Usable(job)), (StepList{20, 10}));
}

}  // namespace
}  // namespace muster::jobs
