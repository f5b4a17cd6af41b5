#include "worker/tensorboard/backlog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
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
Backlog Begun(int64_t step, size_t limit = kAmple, size_t batch = kAmple) {
  Backlog backlog(limit, batch);
  backlog.Begin(step, {});
  backlog.Written(backlog.ForNewFile());
  backlog.Synced();
  return backlog;
}

void WriteAll(Backlog& backlog) { backlog.Written(backlog.Next()); }

TEST(Backlog, GivesEachEntryOnce) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(1, "loss", 0.5));
  const auto batch = backlog.Next();
  EXPECT_EQ(batch.start, std::nullopt);
  EXPECT_THAT(batch.entries, ElementsAre(Number(1, "loss", 0.5)));
  backlog.Written(batch);
  EXPECT_TRUE(backlog.complete());
  backlog.Add(Number(2, "loss", 0.25));
  EXPECT_THAT(backlog.Next().entries, ElementsAre(Number(2, "loss", 0.25)));
}

TEST(Backlog, BeginsTheFirstFileWhereTheSessionBegins) {
  Backlog backlog(kAmple, kAmple);
  backlog.Add(Number(8, "loss", 1));
  backlog.Begin(7, {Number(7, "loss", 2)});
  const auto batch = backlog.ForNewFile();
  EXPECT_EQ(batch.start, 7);
  EXPECT_THAT(batch.entries, ElementsAre(Number(7, "loss", 2), Number(8, "loss", 1)));
}

TEST(Backlog, BeginsTheFirstFileThereEvenIfNothingOfThatStepIsLeft) {
  Backlog backlog(kAmple, kAmple);
  backlog.Begin(7, {});
  backlog.Add(Number(9, "loss", 1));
  EXPECT_EQ(backlog.ForNewFile().start, 7);
}

TEST(Backlog, KnowsWhatIsCarriedAlready) {
  Backlog backlog(kAmple, kAmple);
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
  backlog.Written(batch);
  EXPECT_TRUE(backlog.complete());
  backlog.Add(Number(5, "loss", 1));
  EXPECT_EQ(backlog.Next().start, std::nullopt);
}

TEST(Backlog, ReplacesANumberThatIsBeingWritten) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(4, "validation", 2));
  const auto batch = backlog.Next();
  backlog.Add(Number(4, "validation", 3));
  backlog.Written(batch);
  EXPECT_FALSE(backlog.complete());
  const auto again = backlog.Next();
  EXPECT_EQ(again.start, 4);
  EXPECT_THAT(again.entries, ElementsAre(Number(4, "validation", 3)));
  backlog.Written(again);
  EXPECT_TRUE(backlog.complete());
}

TEST(Backlog, ReplacesANumberBehindWhichIsAMuchOlderMark) {
  Backlog backlog = Begun(0);
  backlog.Add(Number(20, "validation", 1));
  backlog.Add(Text(10, "a checkpoint"));
  WriteAll(backlog);
  backlog.Add(Number(20, "validation", 2));
  const auto again = backlog.Next();
  EXPECT_EQ(again.start, 20);
  EXPECT_THAT(again.entries, ElementsAre(Number(20, "validation", 2)));
  backlog.Add(Text(10, "a checkpoint"));
  backlog.Written(again);
  EXPECT_TRUE(backlog.complete()) << "a mark is there once";
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

// What a reader has after these batches, one file after the other: (step, value).
std::vector<std::pair<int64_t, double>> Read(const std::vector<Backlog::Batch>& batches) {
  std::vector<std::pair<int64_t, double>> found;
  for (const Backlog::Batch& batch : batches) {
    if (batch.start.has_value()) {
      std::erase_if(found, [&](const auto& one) { return one.first >= *batch.start; });
    }
    for (const Entry& entry : batch.entries) {
      found.emplace_back(entry.step, std::get<double>(entry.value));
    }
  }
  return found;
}

TEST(Backlog, GivesMuchInSeveralBatches) {
  Backlog backlog = Begun(0, kAmple, 10 * SizeOf(Number(1, "loss", 1)));
  for (int64_t step = 1; step <= 25; ++step) backlog.Add(Number(step, "loss", 1));
  std::vector<size_t> sizes;
  std::vector<int64_t> steps;
  while (!backlog.complete()) {
    const auto batch = backlog.Next();
    sizes.push_back(batch.entries.size());
    for (const int64_t step : StepsOf(batch)) steps.push_back(step);
    backlog.Written(batch);
  }
  EXPECT_THAT(sizes, ElementsAre(10, 10, 5));
  EXPECT_EQ(steps.size(), 25u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
}

TEST(Backlog, BeginsAFileWithTheFirstBatchOfWhatIsMissing) {
  Backlog backlog = Begun(0, kAmple, 10 * SizeOf(Number(1, "loss", 1)));
  std::vector<Backlog::Batch> durable;
  const auto write = [&](Backlog::Batch batch) {
    backlog.Written(batch);
    backlog.Synced();
    durable.push_back(std::move(batch));
  };
  backlog.Add(Number(1, "loss", 1));
  write(backlog.Next());
  for (int64_t step = 2; step <= 40; ++step) backlog.Add(Number(step, "loss", 1));
  // Two batches are written and not durable when the file fails.
  for (int count = 0; count < 2; ++count) WriteAll(backlog);
  const auto first = backlog.ForNewFile();
  EXPECT_EQ(first.start, 2);
  EXPECT_THAT(StepsOf(first), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  write(first);
  EXPECT_FALSE(backlog.complete());
  EXPECT_EQ(backlog.NotDurable(), (LostSteps{12, 40, 29}));
  // The second file fails, too, and has one batch.
  EXPECT_EQ(backlog.ForNewFile().start, 12);
  write(backlog.ForNewFile());
  while (!backlog.complete()) write(backlog.Next());
  std::vector<std::pair<int64_t, double>> all;
  for (int64_t step = 1; step <= 40; ++step) all.emplace_back(step, 1);
  EXPECT_EQ(Read(durable), all);
}

TEST(Backlog, ReplacesANumberWhileSeveralBatchesAreWritten) {
  Backlog backlog = Begun(0, kAmple, 10 * SizeOf(Number(1, "loss", 1)));
  std::vector<Backlog::Batch> written;
  const auto write = [&] {
    written.push_back(backlog.Next());
    backlog.Written(written.back());
  };
  for (int64_t step = 1; step <= 10; ++step) backlog.Add(Number(step, "loss", 1));
  write();
  for (int64_t step = 11; step <= 40; ++step) backlog.Add(Number(step, "loss", 1));
  write();
  // Written already, so it is written again, in a batch that has not everything.
  backlog.Add(Number(9, "loss", 2));
  write();
  EXPECT_EQ(written.back().start, 9);
  EXPECT_FALSE(backlog.complete());
  write();
  EXPECT_EQ(written.back().start, std::nullopt) << "once";
  while (!backlog.complete()) write();
  auto found = Read(written);
  std::sort(found.begin(), found.end());
  ASSERT_EQ(found.size(), 40u);
  for (int64_t step = 1; step <= 40; ++step) {
    EXPECT_EQ(found[step - 1], std::pair(step, step == 9 ? 2.0 : 1.0));
  }
}

}  // namespace
}  // namespace muster::tensorboard
