#include "coordinator/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

TEST(Cluster, ALostAgentsWorkersAreGoneAndTheJobMovesOn) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  EXPECT_EQ(world.job("job").state, jobs::State::kStarting);
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
  // The agent of 'a' is stopped, its worker is well.
  for (int second = 0; second < 11; ++second) {
    ASSERT_EQ(world.job("job").state, jobs::State::kRunning) << second;
    world.Pass(1);
    world.cluster().AgentHeard(2, world.now());
    if (second < 9) EXPECT_TRUE(world.cluster().WorkerBeat(10, {.step = 1}, world.now()));
  }
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
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
  world.cluster().Judge(false, world.now());
  world.Pass(50);
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  world.cluster().Judge(true, world.now());
  world.Pass(10);
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  world.Pass(1);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
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
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").failures[0].rank, 1);
  EXPECT_EQ(world.job("job").failures[0].reason,
            "made no progress for 5m at step 1 (last: forward)");
}

// Two ranks that train, of which rank 0 waits in its 9th collective for rank 1, until `seconds` have passed or somebody was ended.
void BeatWhileRank1Is(World* world, int seconds, const std::function<Heartbeat(int second)>& rank1) {
  for (int second = 0; second < seconds && world->Stops().empty(); ++second) {
    world->cluster().AgentHeard(1, world->now());
    world->cluster().WorkerBeat(
        10,
        {.step = 5,
         .progress = "training",
         .collectives = {.begun = 9, .ended = 8, .newest = {{.number = 9, .name = "all_gather 'roll call' step 6"}}}},
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
    // It moves for a while longer than rank 0.
    return Heartbeat{.step = 5,
                     .progress = "training",
                     .activity = static_cast<uint64_t>(std::min(second, 3)),
                     .collectives = {.begun = 8, .ended = 8, .newest = {{8, "broadcast 'buffers' step 5", true}}}};
  });
  EXPECT_EQ(world.Stops().size(), 2);
  const jobs::FailureNote& failure = world.job("job").failures[0];
  EXPECT_EQ(failure.rank, 1);
  EXPECT_EQ(failure.collectives,
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
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  world.Pass(11);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
}

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
    EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
    world.cluster().AgentHeard(2, world.now());
  }
  world.Pass(1);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").failures[0].reason, "lost its connection for 11s");
  // Given up: even if it comes back now.
  EXPECT_EQ(RefusalReason(world.AttachWorker(20, id)), "STALE_INCARNATION");
}

TEST(Cluster, AStartThatNeverReachedTheAgentIsRepeated) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  ASSERT_EQ(world.Starts().size(), 1);
  world.Restart();
  ASSERT_TRUE(world.Attach(2, Hello("a", 1)).ok());
  ASSERT_EQ(world.Starts().size(), 2);
  EXPECT_EQ(world.Starts()[1].worker, world.Starts()[0].worker);
}

TEST(Cluster, AnExitThatHappenedMeanwhileIsTakenWithTheHelloASignalFirst) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  world.Submit("job", 2);
  AgentHello hello = Hello("a", 2);
  for (uint32_t rank : {0, 1}) {
    WorkerExit exit{.worker = world.job("job").Worker(rank)};
    exit.exit = rank == 0 ? jobs::Exit{.cause = jobs::Exit::Cause::kCode, .number = 1}
                          : jobs::Exit{.cause = jobs::Exit::Cause::kSignal, .number = 9};
    hello.exits.push_back(exit);
  }
  world.Restart();
  ASSERT_TRUE(world.Attach(2, hello).ok());
  EXPECT_EQ((world.Orders<SendToAgent, AckExit>().size()), 2);
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").failures[0].rank, 1);
}

TEST(Cluster, CheckpointsAreToldAgainToARankThatComesBack) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, id).ok());
  for (uint64_t n = 1; n <= 4; ++n) {
    ASSERT_TRUE(
        world.Report(10, {.sequence = n, .what = CheckpointWritten{n, absl::StrCat("p", n)}}).ok());
  }
  world.Restart();
  world.effects.clear();
  ASSERT_TRUE(world.AttachWorker(11, id).ok());
  const auto told = world.Orders<SendToWorker, CheckpointRecorded>();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].path, "p4");
  EXPECT_EQ(told[0].remove, (std::vector<std::string>{"p1"}));
  const auto welcome = world.Orders<SendToWorker, WelcomeWorker>();
  EXPECT_EQ(welcome[0].checkpoints.size(), 3);
  EXPECT_EQ(welcome[0].acked_report, 4);
}

TEST(Cluster, ReportsOfARankThatIsNotCurrentChangeNothing) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, id).ok());
  world.Exit(1, id, 9);
  ASSERT_EQ(world.job("job").generation, 2);
  ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = CheckpointWritten{5, "late"}}).ok());
  EXPECT_TRUE(world.job("job").checkpoints.empty());
}

TEST(Cluster, AWorkerThatItsAgentSpeaksForIsNotLostBeforeItsReportsAreTold) {
  World world;
  world.Start("job", 1);
  AgentHello hello = Hello("a", 1);
  hello.running.push_back({world.job("job").Worker(0), 7});
  // The node was cut off; the worker did its work meanwhile, and has ended.
  world.Pass(10);
  ASSERT_TRUE(world.Attach(2, hello).ok());
  world.Pass(1);
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
}

TEST(Cluster, DrainingANodeInterruptsItsJobsWithoutARestart) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("local", 1)).ok());
  world.Submit("job", 1, 0);
  const WorkerId id = world.job("job").Worker(0);
  world.cluster().Drain("local", world.now());
  world.Commit();
  EXPECT_EQ(world.Stops().size(), 1);
  EXPECT_TRUE(world.cluster().HasProcesses("local"));
  world.Exit(1, id, 15);
  EXPECT_FALSE(world.cluster().HasProcesses("local"));
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  world.Restart();
  ASSERT_TRUE(world.Attach(2, Hello("local", 1, "b")).ok());
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
}

AgentHello Known(const std::string& id, const std::string& incarnation) {
  AgentHello hello = Hello("a", 1, incarnation);
  hello.agent_id = id;
  return hello;
}

TEST(AgentName, ARestartedAgentHasItsNameAtOnceAndAnotherOneIsRefusedAndEvictsNobody) {
  World world;
  ASSERT_TRUE(world.Attach(1, Known("id", "i1")).ok());
  world.Submit("job", 1);
  const absl::Status taken = world.Attach(2, Known("other", "x1"));
  EXPECT_EQ(RefusalReason(taken), "NODE_NAME_TAKEN");
  EXPECT_TRUE(absl::IsAlreadyExists(taken));
  EXPECT_EQ(world.cluster().membership().FindAgent("a")->session, 1);
  EXPECT_EQ(world.job("job").generation, 1);
  // Its process was killed; the stream may not have broken yet.
  ASSERT_TRUE(world.Attach(3, Known("id", "i2")).ok());
  EXPECT_EQ(world.cluster().membership().FindAgent("a")->session, 3);
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
  world.cluster().Detached(3, world.now());
  EXPECT_EQ(RefusalReason(world.Attach(4, Known("other", "x1"))), "NODE_NAME_TAKEN");
  world.Pass(12);  // the lease is over
  EXPECT_TRUE(world.Attach(5, Known("other", "x1")).ok());
}

TEST(AgentName, IsKeptOverARestartAndSoAreReplacedProcesses) {
  World world;
  ASSERT_TRUE(world.Attach(1, Known("id", "i1")).ok());
  ASSERT_TRUE(world.Attach(2, Known("id", "i2")).ok());
  world.Restart();
  EXPECT_EQ(RefusalReason(world.Attach(3, Known("id", "i1"))), "STALE_INCARNATION");
  EXPECT_EQ(RefusalReason(world.Attach(4, Known("other", "x1"))), "NODE_NAME_TAKEN");
  EXPECT_TRUE(world.Attach(5, Known("id", "i2")).ok());
}

TEST(AgentName, AnAgentWithoutAnIdTakesTheNameOverAsBefore) {
  World world;
  ASSERT_TRUE(world.Attach(1, Known("id", "i1")).ok());
  EXPECT_TRUE(world.Attach(2, Hello("a", 1, "old")).ok());
  EXPECT_EQ(RefusalReason(world.Attach(3, Known("id", "i1"))), "STALE_INCARNATION");
  EXPECT_TRUE(world.Attach(4, Known("id", "i2")).ok());
}

TEST(Drain, ItsJobsAreToldAgainAfterARestartAndNothingIsPlacedThere) {
  World world;
  world.Start("job", 2);
  ASSERT_TRUE(world.cluster().DrainNode({.node = "a", .request_id = "r", .requested_by = "me"},
                                        world.now()).ok());
  world.Commit();
  EXPECT_EQ((world.Orders<SendToWorker, PreemptionNotice>().size()), 2);
  EXPECT_TRUE((world.Orders<SendToAgent, DrainAgent>().back().drain));
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  EXPECT_TRUE(world.Stops().empty());
  world.Restart();
  world.effects.clear();
  AgentHello back = Hello("a", 2);
  for (uint32_t rank : {0, 1}) back.running.push_back({world.job("job").Worker(rank), 1});
  ASSERT_TRUE(world.Attach(2, back).ok());
  EXPECT_TRUE((world.Orders<SendToAgent, DrainAgent>().back().drain)) << "it may not have heard";
  EXPECT_EQ(world.cluster().View("a").reason, "muster drain by me");
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(world.AttachWorker(20 + rank, world.job("job").Worker(rank)).ok());
    ASSERT_TRUE(world.Report(20 + rank, {.sequence = 2, .what = Finished{.step = 3, .preempted = true}}).ok());
  }
  EXPECT_EQ((world.Orders<SendToWorker, PreemptionNotice>().size()), 2);
  for (uint32_t rank : {0, 1}) world.Exit(2, world.job("job").Worker(rank), 0);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").state_reason,
            "to start again: needs 2 slots; node 'a' is drained (muster drain by me)");
  // A repeat that comes late does not undo what was asked since.
  ASSERT_TRUE(world.cluster().UncordonNode({.node = "a", .request_id = "u"}, world.now()).ok());
  ASSERT_TRUE(world.cluster().DrainNode({.node = "a", .request_id = "r", .requested_by = "me"},
                                        world.now()).ok());
  world.Commit();
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Drain, ACordonedNodeKeepsWhatRunsAndAnUnknownOneIsNamed) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.cluster().CordonNode({.node = "a"}, world.now()).ok());
  world.Commit();
  world.Submit("other", 1);
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  EXPECT_EQ(world.job("job").interruption, "");
  EXPECT_EQ(world.job("other").state, jobs::State::kQueued);
  EXPECT_EQ(RefusalReason(world.cluster().CordonNode({.node = "b"}, world.now())), "NODE_NOT_FOUND");
}

TEST(Drain, AnAgentThatStopsGetsNothingNewUntilItsSuccessorComes) {
  World world;
  world.Start("job", 1);
  world.cluster().AgentDraining(1, "SIGTERM", world.now());
  world.Commit();
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = Finished{.preempted = true}}).ok());
  world.Exit(1, world.job("job").Worker(0), 0);
  EXPECT_EQ(world.job("job").generation, 1);
  AgentHello same = Hello("a", 1);
  same.draining = "SIGTERM";
  ASSERT_TRUE(world.Attach(2, same).ok());
  EXPECT_EQ(world.job("job").generation, 1);
  ASSERT_TRUE(world.Attach(3, Hello("a", 1, "b")).ok());
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Drain, AnOlderAgentThatStopsIsAskedOnceAndTheJobHasNotFailed) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 0);
  WorkerExit exit{.worker = world.job("job").Worker(0)};
  exit.exit = {.cause = jobs::Exit::Cause::kStartError, .start_error = "the agent is stopping"};
  world.cluster().WorkerExited(1, exit, world.now());
  world.Commit();
  EXPECT_EQ(world.job("job").generation, 1);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.cluster().View("a").what, Cluster::NodeView::kDraining);
}

TEST(Cluster, ASlotWhoseProcessCannotBeEndedIsNotUsedAndTheJobGoesOnElsewhere) {
  World world;
  world.Start("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = jobs::ReportedFailure{.reason = "boom"}}).ok());
  ASSERT_EQ(world.job("job").generation, 1) << "its process still lives";
  const SlotQuarantine hangs{.slot = 0, .worker = id, .pid = 7, .quarantined = true, .reason = "why"};
  world.cluster().SlotQuarantined(1, hangs, world.now());
  world.Commit();
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").generation, 1) << "there is no other slot";
  EXPECT_EQ(world.cluster().QuarantinedSlots("a"), 1);
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
  AgentHello back = Hello("a", 1);
  back.quarantined_slots = {0};
  back.running = {{id, 7}};
  ASSERT_TRUE(world.Attach(3, back).ok());
  world.Submit("other", 1);
  EXPECT_EQ(world.job("other").generation, 0);
  SlotQuarantine over = hangs;
  over.quarantined = false;
  world.cluster().SlotQuarantined(3, over, world.now());
  world.Exit(3, id, 9);
  EXPECT_EQ(world.job("other").ranks.at(0).node, "a");
}

TEST(Cluster, ANodeWhoseWorkersCannotStartCostsNoRestartBesideAGoodOne) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("job", 1, 0);
  ASSERT_EQ(world.job("job").ranks[0].node, "a");
  world.FailToStart(1, world.job("job").Worker(0));
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Cluster, ANodeWhoseWorkersNeverStartIsLeftOutAndTheJobWaits) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 0);
  uint64_t generation = 0;
  const auto pass = [&](int seconds) {
    for (int second = 0; second < seconds; ++second) {
      world.Pass(1);
      world.cluster().AgentHeard(1, world.now());
      if (world.job("job").generation == generation || !world.job("job").live) continue;
      generation = world.job("job").generation;
      world.FailToStart(1, world.job("job").Worker(0));
    }
  };
  pass(10);
  EXPECT_EQ(generation, 3);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  ASSERT_EQ(world.cluster().View("a").what, Cluster::NodeView::kLeftOut);
  EXPECT_EQ(world.cluster().OfferedSlots().offered(), 0);
  const std::string reason = world.job("job").state_reason;
  EXPECT_NE(reason.find("node 'a' is left out until 00:17:"), std::string::npos) << reason;
  EXPECT_NE(reason.find("could not be started: no such program"), std::string::npos) << reason;
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Pass(1);
  EXPECT_EQ(world.cluster().View("a").what, Cluster::NodeView::kLeftOut) << "it is stored";
  generation = world.job("job").generation;
  pass(70);
  EXPECT_GE(generation, 4) << "once the time is over it is tried again";
  EXPECT_LE(generation, 7);
  pass(3600);
  EXPECT_LT(generation, 40);
  EXPECT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Cluster, RestartsComeSlowerAndSlowerAndKeepTheirPlace) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 10);
  world.Submit("other", 1);
  SessionId session = 10;
  std::vector<double> starts;
  uint64_t generation = 0;
  while (starts.size() < 6) {
    const jobs::Job& job = world.job("job");
    ASSERT_LT(world.seconds, 1000);
    if (job.generation > generation && job.live) {
      generation = job.generation;
      starts.push_back(world.seconds);
      ASSERT_TRUE(world.AttachWorker(++session, job.Worker(0)).ok());
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
  EXPECT_EQ(world.job("urgent").state, jobs::State::kStarting);
  EXPECT_EQ(world.job("first").state_reason, "waits behind job 'later' of priority 5");
}

TEST(Cluster, AJobThatIsTooBigForAllThatIsOfferedHoldsUpNobody) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  world.Submit("big", 9999);
  world.Submit("small", 1);
  EXPECT_EQ(world.job("small").state, jobs::State::kStarting);
  EXPECT_EQ(world.job("big").state_reason,
            "needs 9999 slots; 2 are offered by 1 node, 2 of them free");
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
  ASSERT_EQ(world.job("pair").state, jobs::State::kRecovering);
  world.Submit("small", 1);
  EXPECT_EQ(world.job("small").state, jobs::State::kStarting);
}

TEST(Cluster, AJobWhoseTimeIsUpIsAskedToStopAndEndsFailedAlsoAfterARestart) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  Submission submission{.job_id = "job", .name = "job"};
  submission.plan.time_limit = absl::Seconds(6);
  ASSERT_TRUE(world.cluster().Submit(submission, world.now()).ok());
  world.Commit();
  const WorkerId worker = world.job("job").Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, worker).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = SessionStarted{}}).ok());
  world.Pass(5);
  world.effects.clear();
  EXPECT_EQ(world.job("job").state, jobs::State::kRunning);
  world.Pass(1);
  EXPECT_EQ(world.job("job").state, jobs::State::kStopping);
  const auto orders = world.Orders<SendToWorker, commands::Delivery>();
  ASSERT_EQ(orders.size(), 1);
  EXPECT_EQ(orders[0].command.kind, commands::Kind::kStop);
  EXPECT_EQ(orders[0].command.requested_by, "time_limit");
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.AttachWorker(10, worker).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 3}}).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = Finished{.step = 3}}).ok());
  world.Exit(1, worker, 0);
  EXPECT_EQ(world.job("job").state, jobs::State::kFailed);
  EXPECT_EQ(world.job("job").state_reason, "it has run for its time_limit, 6s");
  EXPECT_EQ(world.job("job").reason_code, "TIME_LIMIT");
  EXPECT_EQ(world.job("job").commands.Find(1)->outcome->code, absl::StatusCode::kOk);
}

TEST(Cluster, AStopIsNotEndedWhileItsRanksMove) {
  World world;
  world.Start("job", 1);
  const WorkerId worker = world.job("job").Worker(0);
  ASSERT_TRUE(world.Stop("job").ok());
  // A save that takes minutes.
  for (uint64_t block = 1; block <= 100; ++block) {
    world.Pass(1);
    world.cluster().AgentHeard(1, world.now());
    world.cluster().WorkerBeat(10, {.progress = "saving a checkpoint", .activity = block}, world.now());
    world.Commit();
  }
  EXPECT_TRUE(world.Stops().empty());
  for (int second = 0; second < 31; ++second) {
    world.Pass(1);
    world.cluster().AgentHeard(1, world.now());
    world.cluster().WorkerBeat(10, {.progress = "saving a checkpoint", .activity = 100}, world.now());
    world.Commit();
  }
  EXPECT_EQ(world.Stops().size(), 1) << "nothing moved for 30 s";
}

TEST(Cluster, AnOlderAgentProcessIsRefusedAlsoAfterItsLeaseAndARestart) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1, "first")).ok());
  world.Pass(12);
  ASSERT_EQ(world.cluster().membership().FindAgent("a"), nullptr) << "it is lost";
  ASSERT_TRUE(world.Attach(2, Hello("a", 1, "second")).ok());
  EXPECT_EQ(RefusalReason(world.Attach(3, Hello("a", 1, "first"))), "STALE_INCARNATION");
  world.Restart();
  EXPECT_EQ(RefusalReason(world.Attach(4, Hello("a", 1, "first"))), "STALE_INCARNATION");
  EXPECT_TRUE(world.Attach(5, Hello("a", 1, "second")).ok());
}

TEST(Cluster, ARestartedCoordinatorStartsNothingThatItLoadedBeforeTheKnownNodesAreBack) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("big", 3);
  world.Restart();
  // In an older database it may run on these two already.
  ASSERT_TRUE(world.Attach(3, Hello("c", 3)).ok());
  world.Pass(1);
  EXPECT_EQ(world.job("big").state, jobs::State::kQueued);
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  EXPECT_EQ(world.job("big").state, jobs::State::kStarting);
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
  EXPECT_EQ(world.job("big").state, jobs::State::kStarting);
}

TEST(Cluster, AJobThatStartsAgainGivesWayToNoPriority) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  world.Submit("urgent", 1, 3, 100);
  world.Exit(1, world.job("job").Worker(0), 9);
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("urgent").state, jobs::State::kQueued);
}

TEST(Cluster, ARankThatHasHadNoInputForLongIsToldOfOnce) {
  World world;
  world.Start("job", 2);
  const auto told = [&] {
    int count = 0;
    for (const Effect& effect : world.effects) {
      const auto* say = std::get_if<Say>(&effect);
      count += say != nullptr && say->text == "job 'job': rank 1 has had no input since step 3";
    }
    return count;
  };
  uint64_t sequence = 1;
  ASSERT_TRUE(world.Report(10, {.sequence = ++sequence, .what = RanksJoined{{{1, 3}}}}).ok());
  for (uint64_t step = 1; step <= 101; ++step) {
    ASSERT_TRUE(world.Report(10, {.sequence = ++sequence, .what = StepDone{.step = step}}).ok());
  }
  EXPECT_EQ(told(), 0);
  for (uint64_t step = 102; step <= 110; ++step) {
    ASSERT_TRUE(world.Report(10, {.sequence = ++sequence, .what = StepDone{.step = step}}).ok());
  }
  EXPECT_EQ(told(), 1);
}

TEST(Cluster, AJobWhoseProcessesEndHasNoThroughput) {
  World world;
  world.Start("job", 2);
  const StepDone step{.step = 1, .samples = 8, .duration = absl::Seconds(1)};
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = step}).ok());
  EXPECT_EQ(world.cluster().ThroughputOf("job").samples_per_second, 8);
  world.Exit(1, world.job("job").Worker(1), 9);
  ASSERT_EQ(world.job("job").state, jobs::State::kRecovering);
  EXPECT_EQ(world.cluster().ThroughputOf("job").samples_per_second, 0);
}

TEST(Cluster, AnOlderWorkerIsRefused) {
  World world;
  world.Attach(1, Hello("n", 1)).IgnoreError();
  world.Submit("job", 1);
  const absl::Status status = world.cluster().AttachWorker(
      10, {.worker = world.job("job").Worker(0), .protocol = 0}, world.now());
  EXPECT_EQ(RefusalReason(status), "WORKER_TOO_OLD");
}

TEST(Cluster, SaysWhichRanksAreOnANode) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("three", 3);
  using Ranks = std::map<std::string, std::vector<uint32_t>>;
  EXPECT_EQ(world.cluster().RanksOn("a"), (Ranks{{"three", {0, 1}}}));
  EXPECT_EQ(world.cluster().RanksOn("b"), (Ranks{{"three", {2}}}));
  world.Exit(1, world.job("three").Worker(0), 9);
  EXPECT_EQ(world.cluster().RanksOn("a"), (Ranks{{"three", {1}}}));
  EXPECT_TRUE(world.cluster().RanksOn("none").empty());
}

TEST(Cluster, VersionsNeverGoBackAcrossRestarts) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  ASSERT_TRUE(world.AttachWorker(10, world.job("job").Worker(0)).ok());
  uint64_t shown = 0;
  for (int i = 0; i < 2500; ++i) {
    world.cluster().WorkerBeat(10, {.step = static_cast<uint64_t>(i)}, world.now());
    world.Commit();
    ASSERT_GE(world.job("job").version, shown);
    shown = world.job("job").version;
  }
  world.Restart();
  EXPECT_GT(world.job("job").version, shown);
}

}  // namespace
}  // namespace muster::cluster
