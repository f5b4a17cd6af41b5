// Which rows a change of a job costs.
#include "coordinator/store/job_rows.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

size_t Rows(const Batch::JobRow& row) {
  const auto count = [](const auto& changes) {
    return changes.put.size() + changes.removed.size();
  };
  return count(row.ranks) + count(row.checkpoints) + count(row.failures) + count(row.commands) +
         count(row.attempts) + row.trainability.has_value() + count(row.trainability_changes);
}

TEST(JobRows, AllRowsOfANewJobAreWritten) {
  EXPECT_EQ(Rows(NewRows(FullJob("a", 1))), 2 + 4 + 2 + 3 + 2 + 1 + 2);
}

TEST(JobRows, WhatHasNotChangedIsNotWrittenAgain) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  rows.TakeChanges(&job);
  EXPECT_EQ(Rows(rows.TakeChanges(&job)), 0);
}

TEST(JobRows, WhatWasLoadedIsNotWrittenAgain) {
  MemoryStore store;
  ASSERT_TRUE(store.Commit({.jobs = {NewRows(FullJob("a", 1))}}).ok());
  jobs::Job job = store.Load()->jobs[0];
  EXPECT_EQ(Rows(JobRows(job).TakeChanges(&job)), 0);
}

struct OneChange {
  const char* name;
  std::function<void(jobs::Job&)> change;
  size_t rows = 1;
};

class JobRowsOf : public testing::TestWithParam<OneChange> {};

TEST_P(JobRowsOf, AreOnlyThoseOfTheChange) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  rows.TakeChanges(&job);
  GetParam().change(job);
  EXPECT_EQ(Rows(rows.TakeChanges(&job)), GetParam().rows);
  EXPECT_EQ(Rows(rows.TakeChanges(&job)), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Changes, JobRowsOf,
    testing::Values(
        OneChange{"OfAField", [](jobs::Job& job) { job.step = 99; }, 0},
        OneChange{"OfARank", [](jobs::Job& job) { job.ranks[1].pid = 5; }},
        OneChange{"WithoutARank", [](jobs::Job& job) { job.ranks.pop_back(); }},
        OneChange{"OfACheckpoint", [](jobs::Job& job) { job.checkpoints[0].bad_reason = "gone"; }},
        OneChange{"WithACheckpoint",
                  [](jobs::Job& job) { job.checkpoints.push_back({.path = "p9"}); }},
        // The new one, and the one that is dropped for it; the one that was dropped before is
        // forgotten.
        OneChange{"OfAllCheckpoints",
                  [](jobs::Job& job) {
                    job.dropped_checkpoints = {job.checkpoints[0].path};
                    job.checkpoints.erase(job.checkpoints.begin());
                    job.checkpoints.push_back({.path = "p24"});
                  },
                  3},
        OneChange{"OfAFailure", [](jobs::Job& job) { job.failures[1].log_tail = "more"; }},
        OneChange{"OfANewCommand", [](jobs::Job& job) { job.commands.Append({}); }},
        OneChange{"OfACommandThatEnds", [](jobs::Job& job) { job.commands.Finished(3, {}); }},
        OneChange{"OfWhatIsTrained", [](jobs::Job& job) { job.trainability.in_force = "g"; }},
        OneChange{"OfTheHistory",
                  [](jobs::Job& job) { job.trainability.history.push_back({.version = 4}); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(JobRows, TheRowsOfACommandDoNotDependOnHowManyThereWere) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  for (int i = 0; i < 10000; ++i) job.commands.Append({});
  rows.TakeChanges(&job);
  const uint64_t number = job.commands.Append({.kind = commands::Kind::kPause});
  EXPECT_EQ(Rows(rows.TakeChanges(&job)), 1);
  job.commands.Applied(number, 7);
  job.commands.Finished(number, {});
  EXPECT_EQ(Rows(rows.TakeChanges(&job)), 1);
}

}  // namespace
}  // namespace muster::store
