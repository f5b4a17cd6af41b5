#include "worker/tensorboard/backlog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster::tensorboard {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kAmple = 1 << 20;

Entry Number(int64_t step, const std::string& tag, double value) {
  return {.step = step, .wall_time = 0, .tag = tag, .value = value};
}
Entry Text(int64_t step, const std::string& text) {
  return {.step = step, .wall_time = 0, .tag = "marks", .value = text};
}

std::vector<int64_t> StepsOf(const Backlog::Batch& batch) {
  std::vector<int64_t> steps;
  for (const Entry& entry : batch.entries) steps.push_back(entry.step);
  return steps;
}

// A backlog that has begun its first file after `step`.
Backlog Begun(int64_t step, size_t limit = kAmple) {
  Backlog backlog(limit);
  backlog.Begin(step, {});
  backlog.Written(backlog.ForNewFile().through);
  backlog.Synced();
  return backlog;
}

void WriteAll(Backlog& backlog) { backlog.Written(backlog.Next().through); }

TEST(Backlog, GivesEachEntryOnce) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(1, "loss", 0.5));
  const auto batch = backlog.Next();
  EXPECT_EQ(batch.start, std::nullopt);
  EXPECT_THAT(batch.entries, ElementsAre(Number(1, "loss", 0.5)));
  backlog.Written(batch.through);
  EXPECT_TRUE(backlog.complete());
  backlog.Add(Number(2, "loss", 0.25));
  EXPECT_THAT(backlog.Next().entries, ElementsAre(Number(2, "loss", 0.25)));
}

TEST(Backlog, BeginsTheFirstFileWhereTheSessionBegins) {
  Backlog backlog(kAmple);
  backlog.Add(Number(8, "loss", 1));
  backlog.Begin(7, {Number(7, "loss", 2)});
  const auto batch = backlog.ForNewFile();
  EXPECT_EQ(batch.start, 7);
  EXPECT_THAT(batch.entries, ElementsAre(Number(7, "loss", 2), Number(8, "loss", 1)));
}

TEST(Backlog, BeginsTheFirstFileThereEvenIfNothingOfThatStepIsLeft) {
  Backlog backlog(kAmple);
  backlog.Begin(7, {});
  backlog.Add(Number(9, "loss", 1));
  EXPECT_EQ(backlog.ForNewFile().start, 7);
}

TEST(Backlog, KnowsWhatIsCarriedAlready) {
  Backlog backlog(kAmple);
  backlog.Add(Text(7, "set-lr"));
  backlog.Add(Number(7, "validation", 1));
  backlog.Begin(7, {Text(7, "set-lr"), Number(7, "validation", 2)});
  EXPECT_THAT(backlog.ForNewFile().entries,
              ElementsAre(Text(7, "set-lr"), Number(7, "validation", 1)));
}

TEST(Backlog, WritesAgainWhatIsNotDurableAfterAFailure) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(1, "loss", 1));
  WriteAll(backlog);
  backlog.Synced();
  backlog.Add(Number(2, "loss", 2));
  WriteAll(backlog);
  backlog.Add(Number(3, "loss", 3));
  const auto batch = backlog.ForNewFile();
  EXPECT_EQ(batch.start, 2);
  EXPECT_THAT(StepsOf(batch), ElementsAre(2, 3));
}

TEST(Backlog, WritesTheWholeStepAgainIfAPartOfItIsDurable) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(5, "loss", 1));
  WriteAll(backlog);
  backlog.Synced();
  backlog.Add(Number(5, "validation", 2));
  const auto batch = backlog.ForNewFile();
  EXPECT_EQ(batch.start, 5);
  EXPECT_THAT(batch.entries, ElementsAre(Number(5, "loss", 1), Number(5, "validation", 2)));
}

TEST(Backlog, DoesNotStartBeforeStepsThatItHasForgotten) {
  Backlog backlog = Begun(0);
  for (int64_t step = 1; step <= 100; ++step) backlog.Add(Number(step, "loss", 1));
  WriteAll(backlog);
  backlog.Synced();
  backlog.Add(Text(50, "a late mark"));
  const auto batch = backlog.ForNewFile();
  EXPECT_THAT(StepsOf(batch), ElementsAre(96, 97, 98, 99, 100, 50));
  EXPECT_EQ(batch.start, 96);
}

TEST(Backlog, ReplacesANumberOfTheSameStep) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(4, "loss", 1));
  backlog.Add(Number(4, "validation", 2));
  backlog.Add(Number(4, "validation", 3));
  EXPECT_THAT(backlog.Next().entries,
              ElementsAre(Number(4, "loss", 1), Number(4, "validation", 3)));
  EXPECT_EQ(backlog.Next().start, std::nullopt);
  WriteAll(backlog);
  backlog.Add(Number(4, "validation", 5));
  const auto batch = backlog.Next();
  EXPECT_EQ(batch.start, 4);
  EXPECT_THAT(batch.entries, ElementsAre(Number(4, "loss", 1), Number(4, "validation", 5)));
  backlog.Written(batch.through);
  EXPECT_TRUE(backlog.complete());
  backlog.Add(Number(5, "loss", 1));
  EXPECT_EQ(backlog.Next().start, std::nullopt);
}

TEST(Backlog, DropsTheOldestStepsWhenThereIsNoRoom) {
  const Entry one = Number(1, "loss", 1);
  Backlog backlog = Begun(0, 10 * SizeOf(one));
  for (int64_t step = 1; step <= 30; ++step) backlog.Add(Number(step, "loss", 1));
  const auto batch = backlog.ForNewFile();
  EXPECT_THAT(StepsOf(batch), ElementsAre(21, 22, 23, 24, 25, 26, 27, 28, 29, 30));
  const auto dropped = backlog.TakeDropped();
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->first, 1);
  EXPECT_EQ(dropped->last, 20);
  EXPECT_EQ(dropped->entries, 20);
  EXPECT_EQ(backlog.TakeDropped(), std::nullopt);
  EXPECT_EQ(backlog.NotDurable()->first, 21);
}

TEST(Backlog, ForgetsWhatIsDurableExceptTheNewestSteps) {
  const Entry one = Number(1, "loss", 1);
  Backlog backlog = Begun(0, 20 * SizeOf(one));
  for (int64_t step = 1; step <= 1000; ++step) {
    backlog.Add(Number(step, "loss", 1));
    WriteAll(backlog);
    backlog.Synced();
  }
  EXPECT_EQ(backlog.TakeDropped(), std::nullopt);
  EXPECT_EQ(backlog.NotDurable(), std::nullopt);
  EXPECT_THAT(backlog.Next().entries, IsEmpty());
  EXPECT_EQ(backlog.ForNewFile().start, 996);
}

}  // namespace
}  // namespace muster::tensorboard
