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

TEST(Checkpoints, TheOldestBeyondKeepAreDropped) {
  Job job;
  job.plan.keep_checkpoints = 2;
  EXPECT_TRUE(RecordCheckpoint(&job, At(10)).empty());
  EXPECT_TRUE(RecordCheckpoint(&job, At(20)).empty());
  EXPECT_EQ(RecordCheckpoint(&job, At(30)), (std::vector<std::string>{"step-10-g1"}));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{20, 30}));
  EXPECT_EQ(Steps(Usable(job)), (StepList{30, 20}));
}

TEST(Checkpoints, ARepeatChangesNothing) {
  Job job;
  job.plan.keep_checkpoints = 1;
  RecordCheckpoint(&job, At(10));
  RecordCheckpoint(&job, At(20));
  EXPECT_TRUE(RecordCheckpoint(&job, At(20)).empty());
  EXPECT_EQ(Steps(job.checkpoints), (StepList{20}));
  EXPECT_EQ(job.dropped_checkpoints, (std::vector<std::string>{"step-10-g1"}));
}

TEST(Checkpoints, ADamagedOneIsNotUsedAndDoesNotPushGoodOnesOut) {
  Job job;
  job.plan.keep_checkpoints = 2;
  RecordCheckpoint(&job, At(10));
  RecordCheckpoint(&job, At(20));
  EXPECT_TRUE(MarkBad(&job, "step-20-g1", "hash differs"));
  EXPECT_FALSE(MarkBad(&job, "step-99-g1", "?"));
  EXPECT_EQ(Steps(Usable(job)), (StepList{10}));
  EXPECT_TRUE(RecordCheckpoint(&job, At(20, 2)).empty());
  EXPECT_EQ(Steps(Usable(job)), (StepList{20, 10}));
  // It goes, its files untouched, once it is older than all that stay.
  EXPECT_EQ(RecordCheckpoint(&job, At(30, 2)), (std::vector<std::string>{"step-10-g1"}));
  EXPECT_EQ(Steps(job.checkpoints), (StepList{20, 30}));
}

TEST(Checkpoints, OfTheSameStepTheNewerGenerationIsTheNewer) {
  Job job;
  RecordCheckpoint(&job, At(20, 2));
  RecordCheckpoint(&job, At(20, 1));
  EXPECT_EQ(Usable(job)[0].generation, 2);
}

}  // namespace
}  // namespace muster::jobs
