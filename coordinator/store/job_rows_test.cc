// The rows that a change of a job writes.
#include "coordinator/store/job_rows.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "coordinator/store/store_fixture.h"

namespace muster::store {
namespace {

TEST(JobRows, AllRowsOfANewJobAreWritten) {
  // The sum's terms: identity, life and progress of the job, then its lists.
  EXPECT_EQ(NewRows(FullJob("a", 1)).rows(), 3 + 2 + 4 + 2 + 3 + 2 + 1 + 2 + 2);
}

TEST(JobRows, WhatHasNotChangedIsNotWrittenAgain) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  rows.TakeChanges(&job);
  EXPECT_EQ(rows.TakeChanges(&job).rows(), 0);
}

TEST(JobRows, WhatWasLoadedIsNotWrittenAgain) {
  MemoryStore store;
  ASSERT_TRUE(store.Commit({.jobs = {NewRows(FullJob("a", 1))}}).ok());
  jobs::Job job = store.Load()->jobs[0];
  EXPECT_EQ(JobRows(job).TakeChanges(&job).rows(), 0);
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
  EXPECT_EQ(rows.TakeChanges(&job).rows(), GetParam().rows);
  EXPECT_EQ(rows.TakeChanges(&job).rows(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Changes, JobRowsOf,
    testing::Values(
        OneChange{"OfItsState", [](jobs::Job& job) { job.state_reason = "other"; }},
        OneChange{"OfItsStep", [](jobs::Job& job) { job.step = 99; }},
        OneChange{"OfAVersionBelowTheCeiling", [](jobs::Job& job) { ++job.version; }, 0},
        OneChange{"OfARank", [](jobs::Job& job) { job.ranks[1].pid = 5; }},
        OneChange{"WithoutARank", [](jobs::Job& job) { job.ranks.pop_back(); }},
        OneChange{"OfACheckpoint", [](jobs::Job& job) { job.checkpoints[0].bad_reason = "gone"; }},
        OneChange{"WithACheckpoint",
                  [](jobs::Job& job) { job.checkpoints.push_back({.path = "p9"}); }},
        // The rows are the new checkpoint, and the checkpoint dropped for it. The row of a formerly
        // dropped checkpoint is removed.
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
        // The rows are the change, and the identity with the new settings.
        OneChange{"OfItsSettings",
                  [](jobs::Job& job) {
                    job.spec = "changed";
                    job.setting_changes.push_back({.attempt = 4, .path = "seed"});
                  },
                  2},
        OneChange{"OfTheHistory",
                  [](jobs::Job& job) { job.trainability.history.push_back({.version = 4}); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(JobRows, AStepWritesTheRowsOfItsRankAndOfTheProgress) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  rows.TakeChanges(&job);
  ++job.step;
  ++job.ranks[0].acked_report;
  const Batch::JobRow row = rows.TakeRanks(job, {0});
  EXPECT_EQ(row.rows(), 2);
  EXPECT_TRUE(row.progress.has_value());
  EXPECT_TRUE(row.ranks.put.contains(0));
}

TEST(JobRows, TheRowsOfACommandDoNotDependOnHowManyThereWere) {
  jobs::Job job = FullJob("a", 1);
  JobRows rows;
  for (int i = 0; i < 10000; ++i) job.commands.Append({});
  rows.TakeChanges(&job);
  const uint64_t number = job.commands.Append({.kind = v1::Operation::PAUSE});
  EXPECT_EQ(rows.TakeChanges(&job).rows(), 1);
  job.commands.Applied(number, 7);
  job.commands.Finished(number, {});
  EXPECT_EQ(rows.TakeChanges(&job).rows(), 1);
}

}  // namespace
}  // namespace muster::store
