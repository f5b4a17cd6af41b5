#include "coordinator/commands/command_log.h"

#include <gtest/gtest.h>

namespace muster::commands {
namespace {

TEST(CommandLog, NumbersAreFromOneWithoutGaps) {
  CommandLog log;
  EXPECT_EQ(log.Append(Kind::kStop), 1);
  EXPECT_EQ(log.Append(Kind::kStop), 2);
}

TEST(CommandLog, DeliversWhatAWorkerDoesNotHold) {
  CommandLog log;
  for (int i = 0; i < 3; ++i) log.Append(Kind::kStop);
  ASSERT_EQ(log.After(1).size(), 2);
  EXPECT_EQ(log.After(1)[0].number, 2);
  EXPECT_EQ(log.After(0).size(), 3);
  EXPECT_TRUE(log.After(3).empty());
  EXPECT_TRUE(log.After(99).empty());
}

TEST(CommandLog, TheFirstAcknowledgementStands) {
  CommandLog log;
  log.Append(Kind::kStop);
  EXPECT_TRUE(log.Applied(1, 17));
  EXPECT_FALSE(log.Applied(1, 18));
  EXPECT_EQ(log.commands()[0].applied_step, 17);
}

TEST(CommandLog, UnknownNumbersAreIgnored) {
  CommandLog log;
  EXPECT_FALSE(log.Applied(0, 1));
  EXPECT_FALSE(log.Applied(1, 1));
}

TEST(CommandLog, GoesOnWhereTheStoredOneEnded) {
  CommandLog first;
  first.Append(Kind::kStop);
  first.Applied(1, 5);
  CommandLog second(first.commands());
  EXPECT_EQ(second.commands(), first.commands());
  EXPECT_EQ(second.Append(Kind::kStop), 2);
}

}  // namespace
}  // namespace muster::commands
