#include "coordinator/jobs/life_row.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster::jobs {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);

const life::Alive kAlive = {.since = kNow,
                            .rendezvous = Rendezvous{"10.0.0.1", 4242},
                            .export_granted = "/out",
                            .ended_early = "rank 1 has run out",
                            .interruption = "node 'n' is drained",
                            .preempted = true,
                            .halt_reason = "none can be read"};

std::vector<Phase> AllPhases() {
  using life::Ended;
  using life::Stopping;
  return {life::Queued(),
          life::Starting{kAlive, true},
          life::Running{kAlive},
          life::Paused{kAlive},
          life::Paused{life::Halted{"none can be read"}},
          life::Recovering{life::Ending{kAlive}, true},
          life::Recovering{life::Waiting{kNow}, true},
          Stopping{kAlive},
          Stopping{kAlive, Stopping::Why::kTimeIsUp, absl::InfinitePast(), true},
          Ended{Ended::Outcome::kSucceeded, kNow},
          Ended{Ended::Outcome::kFailed, kNow, true},
          Ended{Ended::Outcome::kCancelled, kNow}};
}

TEST(LifeRow, EachPhaseComesBackWithItsFacts) {
  for (const Phase& phase : AllPhases()) {
    JobLife life;
    life.phase = phase;
    life.attempt = 3;
    const LifeRow row = RowOf(life);
    const auto again = LifeOf(row);
    ASSERT_TRUE(again.ok()) << Name(row.state) << again.status();
    EXPECT_EQ(again->phase.index(), phase.index());
    EXPECT_EQ(again->attempt, 3);
    EXPECT_EQ(RowOf(*again), row) << Name(row.state);
    EXPECT_EQ(row.live, row.since == kNow);
  }
}

TEST(LifeRow, WhatNoLifeCanHaveIsRefusedByName) {
  const auto error = [](const LifeRow& row) { return std::string(LifeOf(row).status().message()); };
  LifeRow row;
  row.state = State::kRunning;
  EXPECT_EQ(error(row), "no job can be RUNNING without processes");
  row.live = row.ending = true;
  EXPECT_EQ(error(row), "no job can be RUNNING with processes that end");
  row.state = State::kSucceeded;
  EXPECT_EQ(error(row), "no job can be SUCCEEDED with processes that end");
  row = {};
  row.state = State::kStopping;
  row.live = true;
  EXPECT_EQ(error(row), "no job can be STOPPING with processes");
  row.state = State::kPaused;
  row.live = false;
  EXPECT_EQ(error(row), "no job can be PAUSED without processes");
  row.state = static_cast<State>(99);
  EXPECT_EQ(error(row), "no job can be UNKNOWN without processes");
}

// Rows as 0.3.0 wrote them.
TEST(LifeRow, WhatIsLeftOfAFormerPhaseIsIgnored) {
  LifeRow row;
  row.state = State::kFailed;
  row.end_time = kNow;
  const LifeRow plain = row;
  row.since = kNow;
  row.ending = row.stop_requested = row.paused = row.preempted = true;
  row.interruption = "node 'n' is drained";
  row.rendezvous = Rendezvous{"10.0.0.1", 4242};
  EXPECT_EQ(RowOf(*LifeOf(row)), plain);
}

}  // namespace
}  // namespace muster::jobs
