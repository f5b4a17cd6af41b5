#include "coordinator/service/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/jobs/job.h"

namespace muster::service {
namespace {

using cluster::Hello;
using jobs::Device;
using jobs::State;
using testing::ElementsAre;
using testing::Pair;

class ObservationTest : public testing::Test {
 protected:
  Observation Look(const ObservedLimits& limits = {}) {
    JobStateIndex index(limits.ended_jobs);
    for (const auto& [number, id] : world_.cluster().submitted()) {
      index.Saw(*world_.cluster().Find(id));
    }
    return Observe(world_.cluster(), index, limits, world_.now());
  }
  static std::vector<std::string> Ids(const Observation& seen) {
    std::vector<std::string> ids;
    for (const ObservedJob& job : seen.jobs) ids.push_back(job.id);
    return ids;
  }

  cluster::World world_;
};

TEST_F(ObservationTest, AJobThatTrainsIsToldWithItsRanksAndSlots) {
  world_.Start("a", 2);
  world_.seconds += 3;
  const Observation seen = Look();
  EXPECT_THAT(seen.jobs_by_state, ElementsAre(Pair(State::kRunning, 1)));
  EXPECT_THAT(seen.ranks_by_state, ElementsAre(Pair(v1::RankStatus::ATTACHED, 2)));
  EXPECT_THAT(seen.nodes_by_state, ElementsAre(Pair(v1::Node::ATTACHED, 1)));
  EXPECT_EQ(seen.slots.at(Device::kCpu), 2);
  EXPECT_EQ(seen.used_slots.at(Device::kCpu), 2);
  ASSERT_EQ(seen.jobs.size(), 1);
  EXPECT_EQ(seen.jobs[0].active_ranks, 2);
  EXPECT_EQ(seen.jobs[0].joined_ranks, 0);
  EXPECT_EQ(seen.jobs[0].generation, 1);
  ASSERT_EQ(seen.jobs[0].ranks.size(), 2);
  EXPECT_EQ(seen.jobs[0].ranks[1].node, "a");
  EXPECT_EQ(seen.jobs[0].ranks[1].silence, absl::Seconds(3));
}

TEST_F(ObservationTest, TheWaitIsThatOfTheJobThatWaitsLongest) {
  world_.Submit("a", 2);
  world_.seconds += 10;
  world_.Submit("b", 2);
  world_.seconds += 5;
  const Observation seen = Look();
  EXPECT_EQ(seen.queues.at(Device::kCpu).jobs, 2);
  EXPECT_EQ(seen.queues.at(Device::kCpu).oldest_wait, absl::Seconds(15));
  EXPECT_FALSE(seen.queues.contains(Device::kCuda));
}

TEST_F(ObservationTest, AJobThatIsRetriedHasNotWaitedBeforeTheRetry) {
  world_.Submit("a", 2);
  ASSERT_TRUE(world_.Stop("a").ok());
  world_.seconds += 1000;
  ASSERT_TRUE(world_.Command("a", {.kind = v1::Operation::RESUME}).ok());
  world_.seconds += 5;
  EXPECT_EQ(Look().queues.at(Device::kCpu).oldest_wait, absl::Seconds(5));
}

TEST_F(ObservationTest, AJobThatHasEndedIsToldForATimeAndThenOnlyCounted) {
  world_.Submit("a", 2);
  ASSERT_TRUE(world_.Stop("a").ok());
  EXPECT_THAT(Ids(Look({.ended_seconds = 60})), ElementsAre("a"));
  world_.seconds += 61;
  const Observation seen = Look({.ended_seconds = 60});
  EXPECT_TRUE(seen.jobs.empty());
  EXPECT_THAT(seen.jobs_by_state, ElementsAre(Pair(State::kCancelled, 1)));
  EXPECT_EQ(seen.jobs_left_out, 0);
}

TEST_F(ObservationTest, JobsWithProcessesAreToldBeforeThoseThatWait) {
  world_.Submit("waits", 99);
  world_.Start("trains", 2);
  world_.Submit("waits-too", 99);
  EXPECT_THAT(Ids(Look()), ElementsAre("trains", "waits", "waits-too"));
  const Observation seen = Look({.jobs = 2});
  EXPECT_THAT(Ids(seen), ElementsAre("trains", "waits"));
  EXPECT_EQ(seen.jobs_left_out, 1);
  EXPECT_EQ(seen.queues.at(Device::kCpu).jobs, 2);
}

TEST_F(ObservationTest, RanksAndNodesBeyondTheLimitsAreOnlyCounted) {
  world_.Start("a", 3);
  ASSERT_TRUE(world_.Attach(2, Hello("b", 4, "b")).ok());
  const Observation seen = Look({.ranks = 2, .nodes = 1});
  EXPECT_EQ(seen.jobs[0].ranks.size(), 2);
  EXPECT_EQ(seen.ranks_left_out, 1);
  EXPECT_THAT(seen.ranks_by_state, ElementsAre(Pair(v1::RankStatus::ATTACHED, 3)));
  EXPECT_EQ(seen.nodes.size(), 1);
  EXPECT_EQ(seen.nodes_left_out, 1);
  EXPECT_EQ(seen.slots.at(Device::kCpu), 7);
}

TEST_F(ObservationTest, PendingOperationsAreCounted) {
  world_.Start("a", 1);
  ASSERT_TRUE(world_.Command("a", {.kind = v1::Operation::SAVE_CHECKPOINT}).ok());
  const Observation seen = Look();
  EXPECT_EQ(seen.operations_pending, 1);
  EXPECT_EQ(seen.jobs[0].operations_pending, 1);
}

}  // namespace
}  // namespace muster::service
