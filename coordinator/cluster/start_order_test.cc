// The order in which waiting jobs start, and which of them delay others.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/slots/slots.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

TEST(Cluster, RestartsComeSlowerAndSlowerAndKeepTheirPlace) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 10);
  world.Submit("other", 1);
  PeerStreamId stream = 10;
  std::vector<double> starts;
  uint64_t generation = 0;
  while (starts.size() < 6) {
    const jobs::Job& job = world.job("job");
    ASSERT_LT(world.seconds, 1000);
    if (job.generation > generation && job.live()) {
      generation = job.generation;
      starts.push_back(world.seconds);
      ASSERT_TRUE(world.AttachWorker(++stream, job.Worker(0)).ok());
      world.Exit(1, job.Worker(0), 11);
    }
    world.Pass(1);
    world.cluster().AgentHeard(1, world.now());
  }
  EXPECT_LE(starts[1], 1);
  EXPECT_GE(starts[4] - starts[3], 2);
  EXPECT_GE(starts[5] - starts[4], 4);
  EXPECT_EQ(world.job("other").generation, 0) << "nobody overtakes it meanwhile";
}

TEST(Cluster, TheHighestPriorityStartsFirstAndTheOthersAreToldWhy) {
  World world;
  world.Submit("first", 1);
  world.Submit("urgent", 1, 3, 5);
  world.Submit("later", 1, 3, 5);
  for (const char* id : {"first", "urgent", "later"}) {
    EXPECT_EQ(world.job(id).state_reason, "needs 1 slot; no agent is attached");
  }
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  EXPECT_EQ(world.job("urgent").state(), jobs::State::kStarting);
  EXPECT_EQ(world.job("first").state_reason, "waits behind job 'later' of priority 5");
}

TEST(Cluster, AJobThatIsTooBigForAllThatIsOfferedHoldsUpNobody) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  world.Submit("big", 9999);
  world.Submit("small", 1);
  EXPECT_EQ(world.job("small").state(), jobs::State::kStarting);
  EXPECT_EQ(world.job("big").state_reason,
            "needs 9999 slots; 2 are offered by 1 node, 2 of them free");
}

AgentHello HelloWithGpus(const std::string& node, uint32_t slots, uint32_t gpus) {
  AgentHello hello = Hello(node, slots);
  for (uint32_t i = 0; i < gpus; ++i) hello.gpus.push_back({.index = i, .name = "GPU"});
  return hello;
}

TEST(Cluster, AJobOnGpusWaitsForGpusAndHoldsUpNoJobOnTheCpu) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 4)).ok());
  const jobs::Plan plan{.world_size = 2, .device = jobs::Device::kCuda, .threads = 3};
  world.Submit("gpu", plan);
  EXPECT_EQ(world.job("gpu").state_reason, "needs 2 GPUs; no attached agent offers any");
  EXPECT_EQ(world.cluster().overview().TooBigFor(2, jobs::Device::kCuda),
            "needs 2 GPUs; no attached agent offers any");
  world.Submit("cpu", 3);
  EXPECT_EQ(world.job("cpu").state(), jobs::State::kStarting);
  world.effects.clear();

  ASSERT_TRUE(world.Attach(2, HelloWithGpus("b", 0, 2)).ok());
  EXPECT_EQ(world.job("gpu").state(), jobs::State::kStarting);
  const auto starts = world.Starts();
  ASSERT_EQ(starts.size(), 2u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(starts[rank].slot, kFirstGpuSlot + rank);
    EXPECT_EQ(starts[rank].threads, 3u);
    EXPECT_EQ(world.job("gpu").ranks[rank].node, "b");
  }
  EXPECT_EQ(world.cluster().overview().TooBigFor(3, jobs::Device::kCuda),
            "needs 3 GPUs; 2 are offered");
  world.Submit("next", plan);
  EXPECT_EQ(world.job("next").state_reason,
            "needs 2 GPUs; 2 are offered by 1 node, 0 of them free");
}

TEST(Cluster, AfterARestartAJobOnGpusStillNeedsGpus) {
  World world;
  world.Submit("gpu", jobs::Plan{.device = jobs::Device::kCuda});
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("a", 4)).ok());
  EXPECT_EQ(world.job("gpu").state_reason, "needs 1 GPU; no attached agent offers any");
}

TEST(Cluster, AJobWhoseNodeIsGoneHoldsUpNobody) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("pair", 2);
  world.cluster().Detached(2, world.now());
  world.Commit();
  for (int i = 0; i < 12; ++i) {
    world.cluster().AgentHeard(1, world.now());
    world.Pass(1);
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    if (!world.job("pair").ranks[rank].exited) world.Exit(1, world.job("pair").Worker(rank), 15);
  }
  ASSERT_EQ(world.job("pair").state(), jobs::State::kRecovering);
  world.Submit("small", 1);
  EXPECT_EQ(world.job("small").state(), jobs::State::kStarting);
}

TEST(Cluster, ARestartedCoordinatorStartsNothingThatItLoadedBeforeTheKnownNodesAreBack) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("big", 3);
  world.Restart();
  // The job may already run on these two nodes, if the database is an older copy.
  ASSERT_TRUE(world.Attach(3, Hello("c", 3)).ok());
  world.Pass(1);
  EXPECT_EQ(world.job("big").state(), jobs::State::kQueued);
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  EXPECT_EQ(world.job("big").state(), jobs::State::kStarting);
}

TEST(Cluster, ANodeThatDoesNotComeBackHoldsUpWhatWasLoadedForALeaseOnly) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("big", 3);
  world.Restart();
  ASSERT_TRUE(world.Attach(3, Hello("c", 3)).ok());
  for (int second = 0; second < 12; ++second) {
    world.Pass(1);
    world.cluster().AgentHeard(3, world.now());
  }
  world.Pass(1);
  EXPECT_EQ(world.job("big").state(), jobs::State::kStarting);
}

TEST(Cluster, ANodeIsAwaitedForALeaseFromTheTimeAtWhichTheCoordinatorListens) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("big", 3);
  world.Restart();
  world.cluster().Handle(JudgeLiveness{false}, world.now());
  world.Pass(50);
  world.cluster().Handle(JudgeLiveness{true}, world.now());
  ASSERT_TRUE(world.Attach(3, Hello("c", 3)).ok());
  world.Pass(1);
  EXPECT_EQ(world.job("big").state(), jobs::State::kQueued);
  world.PassBeating(3, 12);
  EXPECT_EQ(world.job("big").state(), jobs::State::kStarting);
}

TEST(Cluster, AJobThatWaitsIsToldAtOnceThatANodeLeaves) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("big", 2);
  world.cluster().Handle(LeaveNode{"a"}, world.now());
  world.Commit();
  EXPECT_EQ(world.job("big").state_reason,
            "needs 2 slots; node 'a' is being stopped (musterd is being stopped)");
}

TEST(Cluster, AJobThatStartsAgainGivesWayToNoPriority) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  world.Submit("urgent", 1, 3, 100);
  world.Exit(1, world.job("job").Worker(0), 9);
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("urgent").state(), jobs::State::kQueued);
}

}  // namespace
}  // namespace muster::cluster
