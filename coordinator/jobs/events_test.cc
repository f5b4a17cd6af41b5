#include "coordinator/jobs/events.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace muster::jobs {
namespace {

TEST(Events, AreOfTheJobsGenerationAndStep) {
  Job job;
  job.generation = 3;
  job.step = 17;
  const absl::Time now = absl::FromUnixSeconds(5);
  AddEvent(&job, now, "NODE_LEFT_OUT", "node 'a' is left out");
  AddEvent(&job, now, "SAVE_FAILED", "no space", 16);
  ASSERT_EQ(job.events.size(), 2);
  EXPECT_EQ(job.events[0], (JobEvent{.number = 1,
                                     .time = now,
                                     .generation = 3,
                                     .step = 17,
                                     .reason = "NODE_LEFT_OUT",
                                     .message = "node 'a' is left out"}));
  EXPECT_EQ(job.events[1].number, 2);
  EXPECT_EQ(job.events[1].step, 16);
}

TEST(Events, TheNewestAreKeptAndNumbersGoOn) {
  Job job;
  for (size_t i = 1; i <= kKeptEvents + 5; ++i)
    AddEvent(&job, absl::UnixEpoch(), "R", absl::StrCat(i));
  ASSERT_EQ(job.events.size(), kKeptEvents);
  EXPECT_EQ(job.events.front().message, "6");
  EXPECT_EQ(job.events.front().number, 6);
  EXPECT_EQ(job.newest_event(), kKeptEvents + 5);
}

}  // namespace
}  // namespace muster::jobs
