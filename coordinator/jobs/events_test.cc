#include "coordinator/jobs/events.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::jobs {
namespace {

TEST(Events, AreOfTheJobsGenerationAndStep) {
  Job job;
  job.generation = 3;
  job.step = 17;
  const absl::Time now = absl::FromUnixSeconds(5);
  AddEvent(&job, now, "NODE_LEFT_OUT", "node 'a' is left out");
  AddEvent(&job, now, "SAVE_FAILED", "no space", 16);
  ASSERT_EQ(job.events.size(), 2);
  EXPECT_EQ(job.events[0], (JobEvent{.number = 1,
                                     .time = now,
                                     .generation = 3,
                                     .step = 17,
                                     .reason = "NODE_LEFT_OUT",
                                     .message = "node 'a' is left out"}));
  EXPECT_EQ(job.events[1].number, 2);
  EXPECT_EQ(job.events[1].step, 16);
}

TEST(Events, TheNewestAreKeptAndNumbersGoOn) {
  Job job;
  for (size_t i = 1; i <= kKeptEvents + 5; ++i)
    AddEvent(&job, absl::UnixEpoch(), "R", absl::StrCat(i));
  ASSERT_EQ(job.events.size(), kKeptEvents);
  EXPECT_EQ(job.events.front().message, "6");
  EXPECT_EQ(job.events.front().number, 6);
  EXPECT_EQ(job.newest_event(), kKeptEvents + 5);
}

TEST(Events, TextsOfTheModelReplaceOnlyTexts) {
  Job job;
  AddEvent(&job, absl::UnixEpoch(), "SAVE_FAILED", "no space");
  for (uint64_t step = 1; step <= kKeptEvents + 5; ++step)
    TakeNotice(&job, kSampleReason, "a text", step, absl::UnixEpoch());
  ASSERT_EQ(job.events.size(), kKeptEvents + 1);
  EXPECT_EQ(job.events[0].reason, "SAVE_FAILED");
  EXPECT_EQ(job.events[1].step, 6);
  AddEvent(&job, absl::UnixEpoch(), "SAVE_FAILED", "no folder");
  EXPECT_EQ(job.events.size(), kKeptEvents + 2);
}

TEST(Events, EachFileOfPredictionsIsAdded) {
  Job job;
  for (const char* message :
       {"stages[0].predict: /p0.npy has logits", "stages[2].predict: /p2.npy has logits",
        "stages[2].predict: /p2.npy has logits"}) {
    TakeNotice(&job, "PREDICTIONS_WRITTEN", message, 1, absl::UnixEpoch());
  }
  EXPECT_EQ(job.events.size(), 2);
}

TEST(Events, EachStageThatEndsEarlyIsAdded) {
  Job job;
  for (const char* message : {"stages[0].fit ends after step 4", "stages[2].fit ends after step 9",
                              "stages[2].fit ends after step 9"}) {
    TakeNotice(&job, "EARLY_STOPPED", message, 1, absl::UnixEpoch());
  }
  EXPECT_EQ(job.events.size(), 2);
}

TEST(Events, TheTextOfEachStepIsAdded) {
  Job job;
  for (const uint64_t step : {10, 20, 20, 30}) {
    TakeNotice(&job, "SAMPLE", "the model continues its prompt: 1 2 3", step, absl::UnixEpoch());
  }
  EXPECT_EQ(job.events.size(), 3);
}

TEST(Events, WhatAWorkerSaysIsAddedOnce) {
  Job job;
  const absl::Time now = absl::UnixEpoch();
  TakeNotice(&job, "EXPORT_FAILED", "step 5: the disk is full", 5, now);
  TakeNotice(&job, "EXPORT_FAILED", "step 10: the disk is full", 10, now);
  TakeNotice(&job, "EXPORT_FAILED", "step 15: no such folder", 15, now);
  ASSERT_EQ(job.events.size(), 2);
  EXPECT_EQ(job.events[0].step, 5);
  EXPECT_EQ(job.events[1].message, "step 15: no such folder");
  for (const std::string& reason :
       std::vector<std::string>{"", "lower", "A B", std::string(41, 'A')}) {
    TakeNotice(&job, reason, "of a program that is not ours", 1, now);
  }
  EXPECT_EQ(job.events.size(), 2);
  TakeNotice(&job, "LONG", std::string(998, 'x') + "\u00e9\u00e9", 1, now);
  EXPECT_EQ(job.events[2].message, std::string(998, 'x') + "\u00e9") << "no half character";
}

}  // namespace
}  // namespace muster::jobs
