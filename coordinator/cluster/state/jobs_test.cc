#include "coordinator/cluster/state/jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Jobs, NumbersAreNotUsedAgain) {
  Jobs jobs(7);
  EXPECT_EQ(jobs.Add("", "tiny", "spec")->id, "tiny-8");
  EXPECT_EQ(jobs.Add("tiny-9", "", "")->number, 9u);
  EXPECT_EQ(jobs.Add("tiny-9", "", ""), nullptr);
  EXPECT_EQ(jobs.last_number(), 9u) << "a refused job has none";
  EXPECT_EQ(jobs.Add("", "tiny", "")->id, "tiny-10");
  jobs.Remove("tiny-10");
  EXPECT_EQ(jobs.Add("", "tiny", "")->id, "tiny-11");
}

TEST(Jobs, OneThatHasEndedIsNotOpenUntilItsNextAttempt) {
  Jobs jobs(0);
  jobs::Job* const job = jobs.Add("a", "", "");
  EXPECT_THAT(jobs.Open(), ElementsAre(job));
  job->phase = jobs::life::Ended();
  jobs.Changed(job);
  EXPECT_THAT(jobs.Open(), IsEmpty());
  job->phase = jobs::life::Queued();
  jobs.Changed(job);
  EXPECT_THAT(jobs.Open(), ElementsAre(job));
}

TEST(Jobs, WhatHasChangedIsStoredOnce) {
  Jobs jobs(0);
  jobs::Job* const job = jobs.Add("a", "", "");
  jobs.ListsChanged(*job);
  jobs.Changed(job);
  const Jobs::Changes first = jobs.TakeChanges();
  EXPECT_THAT(first.rows, SizeIs(1));
  EXPECT_THAT(first.changed, ElementsAre("a"));
  const Jobs::Changes none = jobs.TakeChanges();
  EXPECT_THAT(none.rows, IsEmpty());
  EXPECT_THAT(none.changed, IsEmpty());
}

TEST(Jobs, VersionsAreShownUpToTheStoredCeiling) {
  Jobs jobs(0);
  jobs::Job* const job = jobs.Add("a", "", "");
  EXPECT_FALSE(jobs.ShowsMore(job)) << "no ceiling is stored";
  jobs.Changed(job);
  jobs.TakeChanges();
  const uint64_t ceiling = job->version_ceiling;
  while (job->version < ceiling) ASSERT_TRUE(jobs.ShowsMore(job));
  EXPECT_FALSE(jobs.ShowsMore(job));
  EXPECT_GT(job->version_ceiling, ceiling);
  EXPECT_EQ(job->version, ceiling) << "a higher one is not stored yet";
  EXPECT_THAT(jobs.TakeChanges().rows, SizeIs(1)) << "the higher ceiling";
  EXPECT_EQ(job->version, ceiling + 1) << "watchers see the change";
}

TEST(Jobs, NothingIsLeftOfARemovedOne) {
  Jobs jobs(0);
  jobs.Changed(jobs.Add("a", "", "1234"));
  jobs.NotesOf("a").judged = 5;
  EXPECT_EQ(jobs.spec_bytes(), 4u);
  jobs.Remove("a");
  EXPECT_THAT(jobs.TakeChanges().changed, IsEmpty());
  EXPECT_THAT(jobs.submitted(), IsEmpty());
  EXPECT_EQ(jobs.open_count(), 0u);
  EXPECT_EQ(jobs.spec_bytes(), 0u);
  jobs.Add("a", "", "");
  EXPECT_EQ(jobs.NotesOf("a").judged, 0u);
}

}  // namespace
}  // namespace muster::cluster
