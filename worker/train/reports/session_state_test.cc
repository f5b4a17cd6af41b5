#include "worker/train/reports/session_state.h"

#include <gtest/gtest.h>

namespace muster::train {
namespace {

SessionState Some() {
  SessionState state;
  state.step = 7;
  state.position = {2, 24};
  state.sampling = {{.samples = 32, .global_batch = 8, .last = "drop", .order = "shuffled"}};
  state.learning_rate = 0.5;
  state.validation_due = true;
  state.applied = {{1, 3}, {2, 7}};
  state.failed = {{2, absl::OutOfRangeError("no steps are left"), "NO_STEPS_LEFT"}};
  state.validations.best = {.step = 6, .generation = 2, .value = 0.25};
  state.validations.ended = {{0, 4}};
  return state;
}

TEST(SessionState, ResumesFromACheckpoint) {
  checkpoint::SavePoint point;
  Some().Describe(0.1, &point);
  SessionState other;
  other.learning_rate = 0.1;
  other.ResumeFrom(point);
  EXPECT_EQ(other.step, 7);
  EXPECT_EQ(other.position, (data::Position{2, 24}));
  EXPECT_EQ(other.sampling, Some().sampling);
  EXPECT_EQ(other.learning_rate, 0.5);
  EXPECT_TRUE(other.validation_due);
  EXPECT_EQ(other.applied, Some().applied);
  EXPECT_EQ(other.failed, Some().failed);
  EXPECT_EQ(other.validations, Some().validations);
}

TEST(SessionState, TheJobFilesLearningRateIsNotInTheCheckpoint) {
  checkpoint::SavePoint point;
  Some().Describe(0.5, &point);
  EXPECT_FALSE(point.steering.learning_rate.has_value());
  SessionState other;
  other.learning_rate = 0.2;  // the rate of the job file
  other.ResumeFrom(point);
  EXPECT_EQ(other.learning_rate, 0.2);
}

TEST(SessionState, KeepsTheNewestCommandsThatTookEffect) {
  SessionState state;
  for (int64_t command = 1; command <= 300; ++command) {
    state.Applied(command);
    state.Failed({command, absl::InternalError("why"), "WHY"});
  }
  EXPECT_EQ(state.applied.size(), 256);
  EXPECT_EQ(state.applied.front().first, 45);
  EXPECT_EQ(state.applied.back().first, 300);
  EXPECT_EQ(state.failed.size(), 256);
  EXPECT_EQ(state.failed.front().number, 45);
}

}  // namespace
}  // namespace muster::train
