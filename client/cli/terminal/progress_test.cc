#include "client/cli/terminal/progress.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const absl::Time kStart = absl::FromUnixSeconds(1000);

v1::Job Job(const std::string& text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(id: "tiny-1" total_steps: 1000 stage: "fit"
         spec { world_size: 2 batch { per_rank: 8 accumulate: 2 } } )" +
          text,
      &job));
  return job;
}

TEST(ProgressLine, ShowsStepLossRateAndTheTimeLeft) {
  EXPECT_EQ(ProgressLine(Job(R"(state: RUNNING step: 120 loss: 2.34567 validation_loss: 2.5
                                samples_per_second: 320)")),
            "fit  120/1000  12%  loss 2.3457  validation 2.5000  320 samples/s  1m28s left");
}

TEST(ProgressLine, ShowsTokensPerSecondAndTheValidationsAccuracyWhereThereAreSuch) {
  EXPECT_EQ(
      ProgressLine(Job(R"(state: RUNNING step: 120 loss: 2.34567 validation_loss: 2.5
                                validation_accuracy: 0.41204 samples_per_second: 320
                                tokens_per_second: 1234567)")),
      "fit  120/1000  12%  loss 2.3457  validation 2.5000 (41.20%)  1.23M tokens/s  1m28s left");
}

TEST(ProgressLine, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(ProgressLine(Job("state: RUNNING")), "fit  0/1000  0%");
}

TEST(Progress, ALineIsCutToTheWidthThatTheTerminalHasNow) {
  int columns = 21;
  Progress progress(ProgressForm::kTerminal, absl::Seconds(5), [&columns] { return columns; });
  const v1::Job job = Job("state: RUNNING step: 120 loss: 2.34567");
  EXPECT_EQ(progress.Update(job, kStart), "tiny-1: RUNNING\nfit  120/1000  12%  ");
  columns = 10;
  EXPECT_EQ(progress.Update(job, kStart), "\r\x1b[Kfit  120/");
  columns = 0;
  EXPECT_EQ(progress.Update(job, kStart), "\r\x1b[Kfit  120/1000  12%  loss 2.3457");
}

TEST(Progress, PlainLinesComeSeldom) {
  Progress progress(ProgressForm::kPlain, absl::Seconds(5));
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 1"), kStart),
            "tiny-1: RUNNING\nfit  1/1000  0%\n");
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 20"), kStart + absl::Seconds(4)), "");
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 30"), kStart + absl::Seconds(5)),
            "fit  30/1000  3%\n");
}

TEST(Progress, ATestIsTold) {
  Progress progress(ProgressForm::kPlain, absl::Hours(1));
  progress.Update(Job("state: RUNNING step: 9"), kStart);
  const v1::Job tested = Job(R"(state: RUNNING step: 9 test_step: 9
                                test { loss: 2 accuracy: 0.5 top_k: 5 top_k_accuracy: 0.75 })");
  EXPECT_EQ(progress.Update(tested, kStart),
            "step 9: test loss 2.0000, accuracy 50.00%, top 5 75.00%\n");
  EXPECT_EQ(progress.Update(tested, kStart), "");
}

TEST(Progress, EventsAreNeverHeldBack) {
  Progress progress(ProgressForm::kPlain, absl::Hours(1));
  progress.Update(Job("state: RUNNING step: 1"), kStart);
  EXPECT_EQ(progress.Update(Job(R"(state: RUNNING step: 10 validation_loss: 2 validation_step: 10
                                   checkpoints { step: 10 path: "/c/step-10" })"),
                            kStart),
            "step 10: validation loss 2.0000\nstep 10: checkpoint /c/step-10\n");
  const std::string failure =
      progress.Update(Job(R"(state: RECOVERING state_reason: "waits" step: 10 restarts: 1
             failure { rank: 1 node: "n" generation: 1 step: 11 reason: "killed by signal 9" }
             checkpoints { step: 10 path: "/c/step-10" })"),
                      kStart);
  EXPECT_THAT(failure,
              StartsWith("failure: rank 1 on n, generation 1, step 11: killed by signal 9\n"));
  EXPECT_THAT(failure, HasSubstr("tiny-1: RECOVERING: waits\n"));
  EXPECT_EQ(progress.Update(Job(R"(state: STARTING step: 10 restarts: 1
                       failure { rank: 1 node: "n" generation: 1 step: 11 reason: "killed by signal 9" }
                       checkpoints { step: 10 path: "/c/step-10" })"),
                            kStart),
            "tiny-1: STARTING\n");
}

TEST(Progress, AValidationIsToldWithWhatItMeasured) {
  Progress progress(ProgressForm::kPlain, absl::Hours(1));
  progress.Update(Job("state: RUNNING step: 1"), kStart);
  EXPECT_EQ(progress.Update(Job(R"(state: RUNNING step: 9 validation_loss: 2 validation_step: 9
                                   validation_perplexity: 7.38906 validation_accuracy: 0.975)"),
                            kStart),
            "step 9: validation loss 2.0000, perplexity 7.389, accuracy 97.50%\n");
}

TEST(Progress, EventsOfTheJobAreToldOnceAndThoseFromBeforeTheFirstLookAreNoNews) {
  Progress progress(ProgressForm::kPlain, absl::Hours(1));
  const std::string old =
      R"(state: RUNNING step: 1 events { step: 1 reason: "R" message: "old" } )";
  EXPECT_EQ(progress.Update(Job(old), kStart), "tiny-1: RUNNING\nfit  1/1000  0%\n");
  const std::string both = old + R"(events { step: 9 reason: "SAVE_FAILED" message: "disk full" })";
  EXPECT_EQ(progress.Update(Job(both), kStart), "step 9: SAVE_FAILED: disk full\n");
  EXPECT_EQ(progress.Update(Job(both), kStart), "");
}

TEST(Progress, AnotherStageIsShownAtOnceAndAnEqualLossOfAnotherStepIsNews) {
  Progress progress(ProgressForm::kPlain, absl::Hours(1));
  progress.Update(Job("state: RUNNING step: 9 validation_loss: 2 validation_step: 9"), kStart);
  v1::Job next = Job("state: RUNNING step: 18 validation_loss: 2 validation_step: 18");
  next.set_stage("validate");
  EXPECT_EQ(progress.Update(next, kStart),
            "step 18: validation loss 2.0000\nvalidate  18/1000  1%  validation 2.0000\n");
}

TEST(Progress, TheFailureOfAJobThatFailedComesWithItsSummary) {
  Progress progress(ProgressForm::kPlain);
  progress.Update(Job("state: RUNNING step: 1"), kStart);
  EXPECT_EQ(progress.Update(Job(R"(state: FAILED state_reason: "rank 1: out of luck"
                                   failure { rank: 1 reason: "out of luck" })"),
                            kStart),
            "tiny-1: FAILED\n");
}

TEST(Progress, WhatWasThereBeforeTheFirstLookIsNoNews) {
  Progress progress(ProgressForm::kPlain);
  EXPECT_EQ(progress.Update(Job(R"(state: RUNNING step: 11 checkpoints { step: 10 path: "/c" })"),
                            kStart),
            "tiny-1: RUNNING\nfit  11/1000  1%\n");
}

TEST(Progress, AWaitingJobSaysWhyWheneverTheReasonChanges) {
  Progress progress(ProgressForm::kPlain);
  EXPECT_EQ(progress.Update(Job(R"(state: QUEUED state_reason: "a")"), kStart),
            "tiny-1: QUEUED: a\n");
  EXPECT_EQ(progress.Update(Job(R"(state: QUEUED state_reason: "a")"), kStart), "");
  EXPECT_EQ(progress.Update(Job(R"(state: QUEUED state_reason: "b")"), kStart),
            "tiny-1: QUEUED: b\n");
}

TEST(Progress, ATerminalHasOneLineThatIsDrawnOverAndEventsAboveIt) {
  Progress progress(ProgressForm::kTerminal);
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 1"), kStart),
            "tiny-1: RUNNING\nfit  1/1000  0%");
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 1"), kStart), "");
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 20"), kStart), "\r\x1b[Kfit  20/1000  2%");
  EXPECT_EQ(progress.Update(Job("state: SUCCEEDED step: 20"), kStart),
            "\r\x1b[Ktiny-1: SUCCEEDED\n");
  EXPECT_EQ(progress.Interrupt(), "");
}

TEST(Progress, InterruptEndsAnOpenLineOnce) {
  Progress progress(ProgressForm::kTerminal);
  progress.Update(Job("state: RUNNING step: 1"), kStart);
  EXPECT_EQ(progress.Interrupt(), "\n");
  EXPECT_EQ(progress.Interrupt(), "");
  // Other output may have moved the line.
  EXPECT_EQ(progress.Update(Job("state: RUNNING step: 1"), kStart), "fit  1/1000  0%");
}

}  // namespace
}  // namespace muster::cli
