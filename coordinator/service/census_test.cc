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

size_t CountOf(const Census& census, State state) {
  const auto found = census.counts().find(state);
  return found == census.counts().end() ? 0 : found->second;
}

TEST(CensusTest, AJobCountsInTheStateInWhichItWasSeenLast) {
  Census census(10);
  census.Saw(Job(1, State::kQueued));
  census.Saw(Job(2, State::kQueued));
  EXPECT_EQ(CountOf(census, State::kQueued), 2);
  EXPECT_THAT(census.open(), ElementsAre(Pair(1, "job-1"), Pair(2, "job-2")));
  census.Saw(Job(1, State::kRunning));
  census.Saw(Job(1, State::kRunning));
  EXPECT_EQ(CountOf(census, State::kQueued), 1);
  EXPECT_EQ(CountOf(census, State::kRunning), 1);
  census.Saw(Job(1, State::kFailed, 7));
  EXPECT_EQ(CountOf(census, State::kRunning), 0);
  EXPECT_EQ(CountOf(census, State::kFailed), 1);
  EXPECT_THAT(census.open(), ElementsAre(Pair(2, "job-2")));
  EXPECT_THAT(census.failed(), ElementsAre(Pair(testing::_, "job-1")));
}

TEST(CensusTest, AJobThatContinuesAfterItsEndHasNotEnded) {
  Census census(10);
  census.Saw(Job(1, State::kFailed, 7));
  census.Saw(Job(1, State::kQueued));
  EXPECT_TRUE(census.failed().empty());
  EXPECT_EQ(CountOf(census, State::kFailed), 0);
  EXPECT_THAT(census.open(), ElementsAre(Pair(1, "job-1")));
}

TEST(CensusTest, ADeletedJobDoesNotCountAndItsNameCanBeUsedAgain) {
  Census census(10);
  census.Saw(Job(1, State::kFailed, 7));
  census.Deleted("job-1");
  census.Deleted("job-1");
  EXPECT_EQ(CountOf(census, State::kFailed), 0);
  EXPECT_TRUE(census.failed().empty());
  // The job was deleted without a call of Deleted, and a new job has its name.
  census.Saw(Job(1, State::kFailed, 7));
  jobs::Job again = Job(2, State::kFailed, 9);
  again.id = "job-1";
  census.Saw(again);
  EXPECT_EQ(CountOf(census, State::kFailed), 1);
  EXPECT_EQ(census.failed().size(), 1);
}

TEST(CensusTest, OnlyTheJobsThatEndedLastAreKnownByName) {
  Census census(2);
  census.Saw(Job(1, State::kSucceeded, 30));
  census.Saw(Job(2, State::kSucceeded, 10));
  census.Saw(Job(3, State::kSucceeded, 20));
  EXPECT_EQ(CountOf(census, State::kSucceeded), 3);
  EXPECT_THAT(census.ended(), ElementsAre(Pair(testing::_, "job-3"), Pair(testing::_, "job-1")));
}

TEST(CensusTest, AJobThatHasFailedIsNotDisplacedByOthersThatEnd) {
  Census census(2);
  census.Saw(Job(1, State::kFailed, 1));
  for (uint64_t number = 2; number < 10; ++number) {
    census.Saw(Job(number, number % 2 == 0 ? State::kSucceeded : State::kCancelled, number));
  }
  EXPECT_THAT(census.failed(), ElementsAre(Pair(testing::_, "job-1")));
  EXPECT_EQ(census.ended().size(), 2);
  for (uint64_t number = 10; number < 13; ++number) census.Saw(Job(number, State::kFailed, number));
  EXPECT_THAT(census.failed(), ElementsAre(Pair(testing::_, "job-11"), Pair(testing::_, "job-12")));
}

}  // namespace
}  // namespace muster::service
