#include "coordinator/service/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/jobs/life_row.h"

namespace muster::service {
namespace {

using jobs::State;
using testing::ElementsAre;
using testing::Pair;

jobs::Job Job(uint64_t number, State state, int64_t end_time = 0) {
  jobs::Job job;
  job.number = number;
  job.id = "job-" + std::to_string(number);
  jobs::LifeRow row;
  row.state = state;
  row.end_time = absl::FromUnixSeconds(end_time);
  row.live = state == State::kRunning;
  static_cast<jobs::JobLife&>(job) = *jobs::LifeOf(row);
  return job;
}

size_t CountOf(const JobStateIndex& index, State state) {
  const auto found = index.counts().find(state);
  return found == index.counts().end() ? 0 : found->second;
}

TEST(JobStateIndexTest, AJobCountsInTheStateInWhichItWasSeenLast) {
  JobStateIndex index(10);
  index.Saw(Job(1, State::kQueued));
  index.Saw(Job(2, State::kQueued));
  EXPECT_EQ(CountOf(index, State::kQueued), 2);
  EXPECT_THAT(index.open(), ElementsAre(Pair(1, "job-1"), Pair(2, "job-2")));
  index.Saw(Job(1, State::kRunning));
  index.Saw(Job(1, State::kRunning));
  EXPECT_EQ(CountOf(index, State::kQueued), 1);
  EXPECT_EQ(CountOf(index, State::kRunning), 1);
  index.Saw(Job(1, State::kFailed, 7));
  EXPECT_EQ(CountOf(index, State::kRunning), 0);
  EXPECT_EQ(CountOf(index, State::kFailed), 1);
  EXPECT_THAT(index.open(), ElementsAre(Pair(2, "job-2")));
  EXPECT_THAT(index.failed(), ElementsAre(Pair(testing::_, "job-1")));
}

TEST(JobStateIndexTest, AJobThatContinuesAfterItsEndHasNotEnded) {
  JobStateIndex index(10);
  index.Saw(Job(1, State::kFailed, 7));
  index.Saw(Job(1, State::kQueued));
  EXPECT_TRUE(index.failed().empty());
  EXPECT_EQ(CountOf(index, State::kFailed), 0);
  EXPECT_THAT(index.open(), ElementsAre(Pair(1, "job-1")));
}

TEST(JobStateIndexTest, ADeletedJobDoesNotCountAndItsNameCanBeUsedAgain) {
  JobStateIndex index(10);
  index.Saw(Job(1, State::kFailed, 7));
  index.Deleted("job-1");
  index.Deleted("job-1");
  EXPECT_EQ(CountOf(index, State::kFailed), 0);
  EXPECT_TRUE(index.failed().empty());
  // The job was deleted without a call of Deleted, and a new job has its name.
  index.Saw(Job(1, State::kFailed, 7));
  jobs::Job again = Job(2, State::kFailed, 9);
  again.id = "job-1";
  index.Saw(again);
  EXPECT_EQ(CountOf(index, State::kFailed), 1);
  EXPECT_EQ(index.failed().size(), 1);
}

TEST(JobStateIndexTest, OnlyTheJobsThatEndedLastAreKnownByName) {
  JobStateIndex index(2);
  index.Saw(Job(1, State::kSucceeded, 30));
  index.Saw(Job(2, State::kSucceeded, 10));
  index.Saw(Job(3, State::kSucceeded, 20));
  EXPECT_EQ(CountOf(index, State::kSucceeded), 3);
  EXPECT_THAT(index.ended(), ElementsAre(Pair(testing::_, "job-3"), Pair(testing::_, "job-1")));
}

TEST(JobStateIndexTest, AJobThatHasFailedIsNotDisplacedByOthersThatEnd) {
  JobStateIndex index(2);
  index.Saw(Job(1, State::kFailed, 1));
  for (uint64_t number = 2; number < 10; ++number) {
    index.Saw(Job(number, number % 2 == 0 ? State::kSucceeded : State::kCancelled, number));
  }
  EXPECT_THAT(index.failed(), ElementsAre(Pair(testing::_, "job-1")));
  EXPECT_EQ(index.ended().size(), 2);
  for (uint64_t number = 10; number < 13; ++number) index.Saw(Job(number, State::kFailed, number));
  EXPECT_THAT(index.failed(), ElementsAre(Pair(testing::_, "job-11"), Pair(testing::_, "job-12")));
}

}  // namespace
}  // namespace muster::service
