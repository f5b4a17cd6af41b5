// Agents and workers that are silent, hang or stand still, and how long the cluster waits for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

TEST(Cluster, ALostAgentsWorkersAreGoneAndTheJobMovesOn) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kStarting);
  world.cluster().Detached(1, world.now());
  world.Commit();
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  for (int i = 0; i < 13; ++i) {
    world.Pass(1);
    world.cluster().AgentHeard(2, world.now());
  }
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
  EXPECT_EQ(world.job("job").restarts, 0) << "silence is no failure of the job";
  EXPECT_TRUE(world.job("job").failures.empty());
}

TEST(Cluster, ALostAgentsWorkersAreReplacedOnceTheirOwnLeaseIsOver) {
  World world;
  world.Start("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  // The agent of 'a' is stopped; its worker still runs.
  for (int second = 0; second < 11; ++second) {
    ASSERT_EQ(world.job("job").state(), jobs::State::kRunning) << second;
    world.Pass(1);
    world.cluster().AgentHeard(2, world.now());
    if (second < 9) EXPECT_TRUE(world.cluster().WorkerBeat(10, {.step = 1}, world.now()));
  }
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").generation, 1);
  EXPECT_FALSE(world.cluster().WorkerBeat(10, {.step = 1}, world.now())) << "acknowledged no more";
  EXPECT_EQ(RefusalReason(world.AttachWorker(11, id)), "STALE_INCARNATION");
  for (int second = 11; second < 20; ++second) {
    ASSERT_EQ(world.job("job").generation, 1) << "its lease holds until second 20";
    world.Pass(1);
    world.cluster().AgentHeard(2, world.now());
  }
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Cluster, WhoeverIsSilentIsNotJudgedWhileTheCoordinatorDoesNotListen) {
  World world;
  world.Start("job", 1);
  world.cluster().Handle(JudgeLiveness{false}, world.now());
  world.Pass(50);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  world.cluster().Handle(JudgeLiveness{true}, world.now());
  world.Pass(10);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  world.Pass(1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
}

TEST(Cluster, AHungWorkerIsEndedAndNamed) {
  World world;
  world.Start("job", 2);
  for (int second = 0; second < 400 && world.Stops().empty(); ++second) {
    world.cluster().AgentHeard(1, world.now());
    world.cluster().WorkerBeat(10, {.step = 1, .progress = absl::StrCat("step ", second)},
                               world.now());
    world.cluster().WorkerBeat(11, {.step = 1, .progress = "forward"}, world.now());
    world.Pass(1);
  }
  EXPECT_EQ(world.Stops().size(), 2);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").failures[0].rank, 1);
  EXPECT_EQ(world.job("job").failures[0].reason,
            "made no progress for 5m at step 1 (last: forward)");
}

// Sends heartbeats of two ranks that train. Rank 0 waits in its 9th collective for rank 1. Ends
// after `seconds`, or when a process was told to end.
void BeatWhileRank1Is(World* world, int seconds,
                      const std::function<Heartbeat(int second)>& rank1) {
  for (int second = 0; second < seconds && world->Stops().empty(); ++second) {
    world->cluster().AgentHeard(1, world->now());
    world->cluster().WorkerBeat(
        10,
        {.step = 5,
         .progress = "training",
         .collectives = {.begun = 9,
                         .ended = 8,
                         .newest = {{.number = 9, .name = "all_gather 'roll call' step 6"}}}},
        world->now());
    world->cluster().WorkerBeat(11, rank1(second), world->now());
    world->Pass(1);
  }
}

TEST(Cluster, ASlowValidationOfOneRankIsNoHangHoweverLongTheOthersWaitForIt) {
  World world;
  world.Start("job", 2);
  BeatWhileRank1Is(&world, 2000, [](int second) {
    return Heartbeat{.step = 5,
                     .progress = "validating",
                     .activity = static_cast<uint64_t>(second),
                     .collectives = {.begun = 8, .ended = 8}};
  });
  EXPECT_TRUE(world.Stops().empty());
  EXPECT_EQ(world.job("job").generation, 1);
}

TEST(Cluster, OfHungRanksTheOneThatIsBehindIsBlamedWithItsCollectives) {
  World world;
  world.Start("job", 2);
  BeatWhileRank1Is(&world, 400, [](int second) {
    // Rank 1 makes progress for a while longer than rank 0.
    return Heartbeat{
        .step = 5,
        .progress = "training",
        .activity = static_cast<uint64_t>(std::min(second, 3)),
        .collectives = {
            .begun = 8, .ended = 8, .newest = {{8, "broadcast 'buffers' step 5", true}}}};
  });
  EXPECT_EQ(world.Stops().size(), 2);
  const jobs::FailureNote& failure = world.job("job").failures[0];
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(
      failure.collectives,
      (std::vector<std::string>{"rank 1: number 8, broadcast 'buffers' step 5, ended",
                                "rank 0: number 9, all_gather 'roll call' step 6, not ended"}));
}

TEST(Cluster, AJobsOwnWatchdogIsTheOneThatCountsAlsoAfterARestart) {
  for (const bool restart : {false, true}) {
    World world;
    ASSERT_TRUE(world.Attach(1, {.node = "a", .incarnation = "a", .host = "a", .slots = 2}).ok());
    Submission submission{.job_id = "job", .name = "job"};
    submission.plan.world_size = 1;
    submission.plan.no_progress = absl::Seconds(40);
    ASSERT_TRUE(world.cluster().Submit(submission, world.now()).ok());
    world.Commit();
    if (restart) {
      world.Restart();
      ASSERT_TRUE(world.Attach(1, {.node = "a", .incarnation = "a", .host = "a", .slots = 2}).ok());
    }
    ASSERT_TRUE(world.AttachWorker(10, world.job("job").Worker(0)).ok());
    ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = SessionStarted{}}).ok());
    for (int second = 0; second < 39; ++second) {
      world.cluster().AgentHeard(1, world.now());
      world.cluster().WorkerBeat(10, {.step = 0, .collectives = {.begun = 1}}, world.now());
      world.Pass(1);
    }
    EXPECT_TRUE(world.Stops().empty());
    world.Pass(3);
    EXPECT_EQ(world.Stops().size(), 1);
  }
}

TEST(Cluster, OtherMemoryAloneIsNoProgressAndNoNewVersion) {
  World world;
  world.Start("job", 1);
  Heartbeat beat{.step = 1, .progress = "forward", .memory = "some"};
  world.cluster().WorkerBeat(10, beat, world.now());
  const membership::Worker* worker = world.cluster().membership().FindWorker("job", 0);
  EXPECT_EQ(worker->memory, "some");
  const uint64_t version = world.job("job").version;
  const absl::Time progressed = worker->progressed;
  world.Pass(1);
  beat.memory = "more";
  world.cluster().WorkerBeat(10, beat, world.now());
  EXPECT_EQ(worker->memory, "more");
  EXPECT_EQ(world.job("job").version, version);
  EXPECT_EQ(worker->progressed, progressed);
}

TEST(Cluster, AfterItsOwnPauseNobodyIsLost) {
  World world;
  world.Start("job", 1);
  world.Pass(1);
  world.StandStill(1000);
  world.Pass(5);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  world.Pass(11);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
}

TEST(Cluster, PeersRefusedWhileTheStoreFailedGetANewLease) {
  World world;
  world.Start("job", 1);
  world.cluster().Detached(10, world.now());
  world.cluster().Detached(1, world.now());
  world.StoreFails(1000);
  world.Pass(5);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  world.Pass(11);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
}

// The worker may still live, because a musterd in trouble answered it.
TEST(Cluster, AfterARestartWhoDoesNotComeBackInOneLeaseIsLost) {
  World world;
  world.Start("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  world.Restart();
  AgentHello hello = Hello("a", 1);
  hello.running.push_back({id, 7});
  ASSERT_TRUE(world.Attach(2, hello).ok());
  for (int second = 0; second < 10; ++second) {
    world.Pass(1);
    EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
    world.cluster().AgentHeard(2, world.now());
  }
  world.Pass(1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").failures[0].reason, "lost its connection and was silent for 11s");
  // The worker was given up, even if it attaches now.
  EXPECT_EQ(RefusalReason(world.AttachWorker(20, id)), "STALE_INCARNATION");
}

TEST(Cluster, AWorkerThatItsAgentSpeaksForIsNotLostBeforeItsReportsAreTold) {
  World world;
  world.Start("job", 1);
  AgentHello hello = Hello("a", 1);
  hello.running.push_back({world.job("job").Worker(0), 7});
  // The worker was cut off. It did its work meanwhile, and has ended.
  world.PassBeating(1, 10);
  ASSERT_TRUE(world.Attach(2, hello).ok());
  world.Pass(1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
}

TEST(Cluster, AStopIsNotEndedWhileItsRanksMove) {
  World world;
  world.Start("job", 1);
  const WorkerId worker = world.job("job").Worker(0);
  ASSERT_TRUE(world.Stop("job").ok());
  // The save takes minutes.
  for (uint64_t block = 1; block <= 100; ++block) {
    world.Pass(1);
    world.cluster().AgentHeard(1, world.now());
    world.cluster().WorkerBeat(10, {.progress = "saving a checkpoint", .activity = block},
                               world.now());
    world.Commit();
  }
  EXPECT_TRUE(world.Stops().empty());
  for (int second = 0; second < 31; ++second) {
    world.Pass(1);
    world.cluster().AgentHeard(1, world.now());
    world.cluster().WorkerBeat(10, {.progress = "saving a checkpoint", .activity = 100},
                               world.now());
    world.Commit();
  }
  EXPECT_EQ(world.Stops().size(), 1) << "nothing moved for 30 s";
}

}  // namespace
}  // namespace muster::cluster
