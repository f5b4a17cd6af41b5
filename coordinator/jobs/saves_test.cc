#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"

namespace muster::jobs {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

std::string Full(uint64_t step) {
  return absl::StrCat("checkpoint step-", step, "-g1: rank 0: write /c/step-", step,
                      "-g1.tmp/x: No space left on device");
}

std::vector<std::string> Reasons(const Job& job) {
  std::vector<std::string> reasons;
  for (const JobEvent& event : job.events)
    reasons.push_back(absl::StrCat(event.reason, " ", event.step));
  return reasons;
}

using Texts = std::vector<std::string>;

TEST(Saves, TheFirstFailureIsToldAndEveryTenthOfItsKind) {
  Job job;
  for (uint64_t step = 1; step <= 25; ++step) OnSaveFailed(&job, step, Full(step), kNow);
  EXPECT_EQ(Reasons(job), (Texts{"SAVE_FAILED 1", "SAVE_FAILED 10", "SAVE_FAILED 20"}));
  EXPECT_EQ(job.events[0].message, Full(1));
  EXPECT_EQ(job.events[1].message, Full(10) + " (10 saves in a row failed)");
  EXPECT_EQ(job.save_failure,
            (SaveFailure{.step = 25, .message = Full(25), .time = kNow, .count = 25}));
}

TEST(Saves, AnotherKindOfFailureIsTold) {
  Job job;
  OnSaveFailed(&job, 1, Full(1), kNow);
  OnSaveFailed(&job, 2, Full(2), kNow);
  OnSaveFailed(&job, 3, "rank 1: Input/output error", kNow);
  EXPECT_EQ(Reasons(job), (Texts{"SAVE_FAILED 1", "SAVE_FAILED 3"}));
}

TEST(Saves, AGoodSaveEndsTheRowAndIsToldOnce) {
  Job job;
  OnSaved(&job, 1, kNow);
  EXPECT_TRUE(job.events.empty());
  OnSaveFailed(&job, 2, Full(2), kNow);
  OnSaveFailed(&job, 3, Full(3), kNow);
  OnSaved(&job, 4, kNow);
  OnSaved(&job, 5, kNow);
  EXPECT_EQ(job.save_failure, std::nullopt);
  EXPECT_EQ(Reasons(job), (Texts{"SAVE_FAILED 2", "SAVES_WORK_AGAIN 4"}));
  OnSaveFailed(&job, 6, Full(6), kNow);
  EXPECT_EQ(Reasons(job).back(), "SAVE_FAILED 6") << "the count starts again";
}

TEST(Saves, TheWarningNamesTheNewestCheckpointThatCounts) {
  Job job;
  EXPECT_EQ(SaveWarning(job), "");
  OnSaveFailed(&job, 10, "full", kNow);
  EXPECT_EQ(SaveWarning(job), "the last save failed: full; there is no checkpoint");
  EXPECT_EQ(Kept(job), "no checkpoint is kept");
  job.checkpoints = {{.step = 40, .path = "/c/40"},
                     {.step = 50, .path = "/c/50", .bad_reason = "hash"}};
  OnSaveFailed(&job, 60, "full", kNow);
  EXPECT_EQ(SaveWarning(job), "the last 2 saves failed: full; the newest checkpoint is of step 40");
  EXPECT_EQ(Kept(job), "kept: the checkpoint of step 40 in /c/40");
  job.exported_path = "/out";
  EXPECT_EQ(Kept(job), "kept: the checkpoint of step 40 in /c/40; the weights are in /out");
}

}  // namespace
}  // namespace muster::jobs
