#include "worker/train/standing.h"

#include <gtest/gtest.h>

namespace muster::train {
namespace {

Standing Some() {
  Standing standing;
  standing.step = 7;
  standing.position = {2, 24};
  standing.learning_rate = 0.5;
  standing.validation_due = true;
  standing.applied = {{1, 3}, {2, 7}};
  return standing;
}

TEST(Standing, GoesOnFromACheckpointWhereItStood) {
  checkpoint::SavePoint point;
  Some().Describe(0.1, &point);
  Standing other;
  other.learning_rate = 0.1;
  other.GoOnFrom(point);
  EXPECT_EQ(other.step, 7);
  EXPECT_EQ(other.position, (data::Position{2, 24}));
  EXPECT_EQ(other.learning_rate, 0.5);
  EXPECT_TRUE(other.validation_due);
  EXPECT_EQ(other.applied, Some().applied);
}

TEST(Standing, TheJobFilesLearningRateIsNotInTheCheckpoint) {
  checkpoint::SavePoint point;
  Some().Describe(0.5, &point);
  EXPECT_FALSE(point.steering.learning_rate.has_value());
  Standing other;
  other.learning_rate = 0.2;  // the job file says so
  other.GoOnFrom(point);
  EXPECT_EQ(other.learning_rate, 0.2);
}

TEST(Standing, KeepsTheNewestCommandsThatTookEffect) {
  Standing standing;
  for (int64_t command = 1; command <= 300; ++command) standing.Applied(command);
  EXPECT_EQ(standing.applied.size(), 256);
  EXPECT_EQ(standing.applied.front().first, 45);
  EXPECT_EQ(standing.applied.back().first, 300);
}

}  // namespace
}  // namespace muster::train
