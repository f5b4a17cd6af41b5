#include "worker/tensorboard/queue.h"

#include <gtest/gtest.h>

namespace muster::tensorboard {
namespace {

constexpr size_t kAmple = 1000;

// A size for which Oldest returns one record only.
constexpr size_t kOne = 1;

void WriteOldest(Queue& queue) { queue.Written(queue.Oldest(kOne)); }

TEST(Queue, GivesRecordsInTheirOrder) {
  Queue queue(kAmple);
  queue.Add(1, "one");
  queue.Add(2, "two");
  EXPECT_EQ(queue.Oldest(kOne).bytes, "one");
  EXPECT_EQ(queue.Oldest(kOne).bytes, "one") << "it waits until it is written";
  WriteOldest(queue);
  EXPECT_EQ(queue.Oldest(kOne).bytes, "two");
  EXPECT_EQ(queue.Oldest(kOne).steps.first, 2);
  WriteOldest(queue);
  EXPECT_TRUE(queue.empty());
}

TEST(Queue, KnowsWhatIsDurable) {
  Queue queue(kAmple);
  queue.Add(1, "one");
  queue.Add(2, "two");
  queue.Add(5, "five");
  WriteOldest(queue);
  queue.Synced();
  WriteOldest(queue);
  EXPECT_EQ(queue.newest(), 3u);
  EXPECT_EQ(queue.written(), 2u);
  EXPECT_EQ(queue.settled(), 1u);
  EXPECT_EQ(queue.Missing(), (Steps{2, 5}));
  WriteOldest(queue);
  queue.Synced();
  EXPECT_EQ(queue.settled(), 3u);
  EXPECT_EQ(queue.Missing(), std::nullopt);
}

TEST(Queue, LosesTheOldestRecordsWhenThereIsNoRoom) {
  Queue queue(10 * 3);
  for (int64_t step = 1; step <= 30; ++step) queue.Add(step, "xyz");
  EXPECT_EQ(queue.Oldest(kOne).steps.first, 21);
  EXPECT_EQ(queue.Missing(), (Steps{1, 30}));
  EXPECT_EQ(queue.TakeLost(), (Steps{1, 20}));
  EXPECT_EQ(queue.TakeLost(), std::nullopt);
  EXPECT_EQ(queue.Missing(), (Steps{21, 30}));
}

TEST(Queue, HasRoomAgainForWhatIsWritten) {
  Queue queue(2 * 3);
  queue.Add(0, "xyz");
  for (int64_t step = 1; step <= 100; ++step) {
    queue.Add(step, "xyz");
    WriteOldest(queue);
  }
  EXPECT_EQ(queue.TakeLost(), std::nullopt);
}

TEST(Queue, KeepsARecordThatIsLargerThanItsLimit) {
  Queue queue(2);
  queue.Add(1, "large");
  EXPECT_EQ(queue.Oldest(kOne).bytes, "large");
}

TEST(Queue, KnowsThatRecordsWereDroppedWhileTheyWereWritten) {
  Queue queue(3 * 3);
  for (int64_t step = 1; step <= 3; ++step) queue.Add(step, "xyz");
  const Queue::Batch oldest = queue.Oldest(2 * 3);
  EXPECT_EQ(queue.Add(4, "xyz"), (Steps{1, 1}));
  queue.Written(oldest);
  EXPECT_EQ(queue.Oldest(kOne).steps, (Steps{3, 3}));
  EXPECT_EQ(queue.TakeLost(), (Steps{1, 1}));
}

TEST(Queue, KnowsThatAllThatWasWrittenWasDroppedInTheMeantime) {
  Queue queue(2 * 3);
  queue.Add(1, "xyz");
  const Queue::Batch oldest = queue.Oldest(kAmple);
  for (int64_t step = 2; step <= 9; ++step) queue.Add(step, "xyz");
  queue.Written(oldest);
  EXPECT_EQ(queue.Oldest(kAmple).steps, (Steps{8, 9}));
  EXPECT_EQ(queue.TakeLost(), (Steps{1, 7}));
}

TEST(Queue, GivesAsManyRecordsAsFit) {
  Queue queue(kAmple);
  queue.Add(5, "one");
  queue.Add(3, "two");
  queue.Add(9, "three");
  EXPECT_EQ(queue.Oldest(0).bytes, "one") << "at least one";
  EXPECT_EQ(queue.Oldest(5).bytes, "one");
  const Queue::Batch two = queue.Oldest(6);
  EXPECT_EQ(two.bytes, "onetwo");
  EXPECT_EQ(two.steps, (Steps{3, 5}));
  EXPECT_EQ(queue.Oldest(kAmple).bytes, "onetwothree");
  queue.Written(two);
  EXPECT_EQ(queue.written(), 2u);
  EXPECT_EQ(queue.Oldest(kAmple).bytes, "three");
  EXPECT_EQ(queue.Missing(), (Steps{3, 9}));
}

TEST(Queue, LosesWhatIsNotDurableIfTheFileFails) {
  Queue queue(kAmple);
  for (int64_t step = 1; step <= 4; ++step) queue.Add(step, "xyz");
  WriteOldest(queue);
  queue.Synced();
  WriteOldest(queue);
  WriteOldest(queue);
  EXPECT_EQ(queue.FileFailed(), (Steps{2, 3}));
  EXPECT_EQ(queue.settled(), 3u) << "nobody waits for them any more";
  EXPECT_EQ(queue.TakeLost(), (Steps{2, 3}));
  EXPECT_EQ(queue.Missing(), (Steps{4, 4}));
}

}  // namespace
}  // namespace muster::tensorboard
