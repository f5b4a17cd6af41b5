#include "worker/agent/log_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::agent {
namespace {

using ::testing::ElementsAre;

const WorkerId kA = {.job = "a", .incarnation = "i-a"};
const WorkerId kB = {.job = "b", .incarnation = "i-b"};

TEST(LogQueue, BatchesAreOfOneWorkerTheOldestFirst) {
  LogQueue queue({});
  EXPECT_FALSE(queue.Take().has_value());
  queue.Push(kB, {"b1"});
  queue.Push(kA, {"a1"});
  queue.Push(kB, {"b2"});
  auto batch = queue.Take();
  EXPECT_EQ(batch->worker, kB);
  EXPECT_THAT(batch->lines, ElementsAre("b1", "b2"));
  EXPECT_THAT(queue.Take()->lines, ElementsAre("a1"));
  EXPECT_FALSE(queue.Take().has_value());
}

TEST(LogQueue, BatchesAreBounded) {
  LogQueue queue({.batch_lines = 2, .batch_bytes = 10});
  queue.Push(kA, {"1", "2", "3", "a line longer than a batch", "4"});
  EXPECT_THAT(queue.Take()->lines, ElementsAre("1", "2"));
  EXPECT_THAT(queue.Take()->lines, ElementsAre("3"));
  EXPECT_THAT(queue.Take()->lines, ElementsAre("a line longer than a batch"));
  EXPECT_THAT(queue.Take()->lines, ElementsAre("4"));
}

TEST(LogQueue, OneWorkersLinesCanBeTakenFirst) {
  LogQueue queue({});
  queue.Push(kA, {"a1"});
  queue.Push(kB, {"b1"});
  EXPECT_THAT(queue.TakeFrom(kB)->lines, ElementsAre("b1"));
  EXPECT_FALSE(queue.TakeFrom(kB).has_value());
  EXPECT_THAT(queue.Take()->lines, ElementsAre("a1"));
}

TEST(LogQueue, BeyondItsBoundTheNewestStayAndTheLossIsTold) {
  LogQueue queue({.max_lines = 3});
  queue.Push(kA, {"1", "2", "3", "4", "5"});
  EXPECT_THAT(
      queue.Take()->lines,
      ElementsAre("[muster-agent: 2 lines are missing here: the coordinator was away, or too slow]",
                  "3", "4", "5"));
  queue.Push(kA, {"6"});
  EXPECT_THAT(queue.Take()->lines, ElementsAre("6"));
}

TEST(LogQueue, TheLossIsToldEvenWhereNothingIsLeft) {
  LogQueue queue({.max_bytes = 4});
  queue.Push(kA, {"aa"});
  queue.Push(kB, {"bbbb"});
  EXPECT_THAT(queue.Take()->lines, ElementsAre("bbbb"));
  auto rest = queue.Take();
  EXPECT_EQ(rest->worker, kA);
  EXPECT_EQ(rest->lines.size(), 1);
  EXPECT_FALSE(queue.Take().has_value());
}

}  // namespace
}  // namespace muster::agent
