// Nodes that are drained, cordoned or left out, or that have slots which must not be used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

TEST(Cluster, DrainingANodeInterruptsItsJobsWithoutARestart) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("local", 1)).ok());
  world.Submit("job", 1, 0);
  const WorkerId id = world.job("job").Worker(0);
  world.cluster().Handle(LeaveNode{"local"}, world.now());
  world.Commit();
  EXPECT_EQ(world.Stops().size(), 1);
  EXPECT_FALSE(world.cluster().overview().RanksOn("local").empty());
  world.Exit(1, id, 15);
  EXPECT_TRUE(world.cluster().overview().RanksOn("local").empty());
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  world.Restart();
  ASSERT_TRUE(world.Attach(2, Hello("local", 1, "b")).ok());
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Drain, ItsJobsAreToldAgainAfterARestartAndNothingIsPlacedThere) {
  World world;
  world.Start("job", 2);
  ASSERT_TRUE(
      world.cluster()
          .Handle(DrainNode{{.node = "a", .request_id = "r", .requested_by = "me"}}, world.now())
          .ok());
  world.Commit();
  EXPECT_EQ((world.Orders<SendToWorker, PreemptionNotice>().size()), 2);
  EXPECT_TRUE((world.Orders<SendToAgent, DrainAgent>().back().drain));
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  EXPECT_TRUE(world.Stops().empty());
  world.Restart();
  world.effects.clear();
  AgentHello back = Hello("a", 2);
  for (uint32_t rank : {0, 1}) back.running.push_back({world.job("job").Worker(rank), 1});
  ASSERT_TRUE(world.Attach(2, back).ok());
  EXPECT_TRUE((world.Orders<SendToAgent, DrainAgent>().back().drain)) << "it may not have heard";
  EXPECT_EQ(world.cluster().overview().View("a").reason, "muster drain by me");
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(world.AttachWorker(20 + rank, world.job("job").Worker(rank)).ok());
    ASSERT_TRUE(
        world.Report(20 + rank, {.sequence = 2, .what = Finished{.step = 3, .preempted = true}})
            .ok());
  }
  EXPECT_EQ((world.Orders<SendToWorker, PreemptionNotice>().size()), 2);
  for (uint32_t rank : {0, 1}) world.Exit(2, world.job("job").Worker(rank), 0);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").state_reason,
            "to start again: needs 2 slots; node 'a' is drained (muster drain by me)");
  // A late repeat does not undo a later request.
  ASSERT_TRUE(
      world.cluster().Handle(UncordonNode{{.node = "a", .request_id = "u"}}, world.now()).ok());
  ASSERT_TRUE(
      world.cluster()
          .Handle(DrainNode{{.node = "a", .request_id = "r", .requested_by = "me"}}, world.now())
          .ok());
  world.Commit();
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").restarts, 0);
}

TEST(Drain, ItsDeadlineIsThatOfWhoAskedLastAndOutlivesARestart) {
  World world;
  world.Start("job", 1);
  const auto drain = [&](std::optional<absl::Duration> deadline) {
    const absl::Status status =
        world.cluster().Handle(DrainNode{{.node = "a", .deadline = deadline}}, world.now());
    world.Commit();
    return status;
  };
  const auto told = [&] { return world.Orders<SendToAgent, DrainAgent>().back().deadline; };
  ASSERT_TRUE(drain(std::nullopt).ok());
  EXPECT_EQ(told(), std::nullopt) << "the agent has one of its own";
  ASSERT_TRUE(drain(absl::Minutes(30)).ok());
  EXPECT_EQ(told(), absl::Minutes(30));
  ASSERT_TRUE(drain(absl::Minutes(10)).ok());
  EXPECT_EQ(told(), absl::Minutes(10));
  ASSERT_TRUE(drain(std::nullopt).ok());
  EXPECT_EQ(told(), absl::Minutes(10)) << "who only waits takes nothing back";
  world.Restart();
  ASSERT_TRUE(world.Attach(2, Hello("a", 1)).ok());
  EXPECT_EQ(told(), absl::Minutes(10));
  ASSERT_TRUE(world.cluster().Handle(UncordonNode{{.node = "a"}}, world.now()).ok());
  ASSERT_TRUE(drain(std::nullopt).ok());
  EXPECT_EQ(told(), std::nullopt) << "another drain";
}

TEST(Drain, ADeadlineThatIsNoneOrTooLongIsRefusedAndNothingIsDrained) {
  World world;
  world.Start("job", 1);
  for (const absl::Duration deadline :
       {absl::ZeroDuration(), -absl::Seconds(1), absl::Hours(7 * 24) + absl::Seconds(1),
        absl::InfiniteDuration()}) {
    const absl::Status refused =
        world.cluster().Handle(DrainNode{{.node = "a", .deadline = deadline}}, world.now());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << deadline;
    EXPECT_EQ(RefusalReason(refused), "DEADLINE_INVALID") << deadline;
  }
  EXPECT_EQ(world.cluster().overview().View("a").what, NodeView::kOpen);
}

TEST(Drain, ItsAgentIsToldWhetherTheWorkersGetOn) {
  World world;
  world.Start("job", 1);
  const auto beat = [&](uint64_t activity) {
    EXPECT_TRUE(world.cluster().WorkerBeat(10, {.step = 3, .activity = activity}, world.now()));
    return world.cluster().overview().DrainActivity(1);
  };
  EXPECT_EQ(beat(5), 0) << "the node is not emptied";
  ASSERT_TRUE(world.cluster().Handle(DrainNode{{.node = "a"}}, world.now()).ok());
  world.Commit();
  const uint64_t first = beat(6);
  EXPECT_NE(first, 0);
  EXPECT_EQ(beat(6), first);
  EXPECT_NE(beat(7), first);
  ASSERT_TRUE(world.cluster().Handle(UncordonNode{{.node = "a"}}, world.now()).ok());
  EXPECT_EQ(beat(8), 0);
  world.cluster().Handle(1, AgentStops{"SIGTERM"}, world.now());
  EXPECT_NE(beat(9), 0) << "nor does it matter who asks";
  EXPECT_EQ(world.cluster().overview().DrainActivity(99), 0) << "no agent's stream";
}

// Returns the streams that get a notice for this node.
std::vector<PeerStreamId> Noticed(World& world, const std::string& node, StoreState store) {
  std::vector<PeerStreamId> streams;
  for (const SendToWorker& notice :
       world.cluster().overview().PreemptionNotices(node, "why", store)) {
    EXPECT_EQ(std::get<PreemptionNotice>(notice.order).reason, "why");
    streams.push_back(notice.stream);
  }
  return streams;
}

TEST(PreemptionNotices, TheyNeedNoChangeOfTheState) {
  World world;
  world.Start("job", 2);
  const std::vector<PeerStreamId> both = {10, 11};
  EXPECT_EQ(Noticed(world, "a", StoreState::kWorks), both);
  EXPECT_EQ(Noticed(world, "b", StoreState::kWorks), std::vector<PeerStreamId>());
  EXPECT_TRUE(world.cluster().TakeBatch().empty());
  // An accepted stop that cannot be stored has not reached the workers.
  ASSERT_TRUE(world.Stop("job").ok());
  EXPECT_EQ(Noticed(world, "a", StoreState::kWorks), std::vector<PeerStreamId>());
  EXPECT_EQ(Noticed(world, "a", StoreState::kInTrouble), both);
}

TEST(Drain, TheEventOfAJobThatWritesNoCheckpointsSaysThatItStartsAgainFromStepZero) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.cluster().Handle(DrainNode{{.node = "a"}}, world.now()).ok());
  world.Commit();
  const jobs::JobEvent& event = world.job("job").events.back();
  EXPECT_EQ(event.reason, "PREEMPTED");
  EXPECT_EQ(
      event.message,
      "node 'a' is drained; it writes no checkpoints: it starts again from step 0 on another node");
  EXPECT_EQ(
      world.job("job").state_reason,
      "node 'a' is drained; ends at its next step and starts again from step 0 on another node");
}

// Returns the messages of a job's events PREEMPTED.
std::vector<std::string> Preemptions(const jobs::Job& job) {
  std::vector<std::string> messages;
  for (const jobs::JobEvent& event : job.events) {
    if (event.reason == "PREEMPTED") messages.push_back(event.message);
  }
  return messages;
}

TEST(Drain, EachGenerationThatItEndsSaysSoOnceHoweverOftenItIsAskedFor) {
  World world;
  world.Start("job", 1);
  const auto drain = [&](std::optional<absl::Duration> deadline) {
    ASSERT_TRUE(
        world.cluster().Handle(DrainNode{{.node = "a", .deadline = deadline}}, world.now()).ok());
    world.Commit();
  };
  const auto open = [&] {
    ASSERT_TRUE(world.cluster().Handle(UncordonNode{{.node = "a"}}, world.now()).ok());
    world.Commit();
  };
  drain(std::nullopt);
  drain(absl::Minutes(5));
  open();
  drain(std::nullopt);
  world.cluster().Handle(1, AgentStops{"SIGTERM"}, world.now());
  world.Commit();
  EXPECT_EQ(Preemptions(world.job("job")).size(), 1) << "it ends for the first one";
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = Finished{.preempted = true}}).ok());
  world.Exit(1, world.job("job").Worker(0), 0);
  open();
  ASSERT_TRUE(world.Attach(2, Hello("a", 1, "b")).ok());
  ASSERT_EQ(world.job("job").generation, 2);
  ASSERT_TRUE(world.AttachWorker(20, world.job("job").Worker(0)).ok());
  ASSERT_TRUE(world.Report(20, {.sequence = 1, .what = SessionStarted{}}).ok());
  drain(std::nullopt);
  EXPECT_EQ(Preemptions(world.job("job")).size(), 2);
}

TEST(Drain, AGenerationThatIsEndedAtOnceSaysSoToo) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  ASSERT_TRUE(world.cluster().Handle(DrainNode{{.node = "a"}}, world.now()).ok());
  world.Commit();
  EXPECT_EQ(world.Stops().size(), 1);
  EXPECT_EQ(Preemptions(world.job("job")),
            std::vector<std::string>{
                "node 'a' is drained; it is ended at once: it had not begun to train"});
}

TEST(Drain, ACordonedNodeKeepsWhatRunsAndAnUnknownOneIsNamed) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.cluster().Handle(CordonNode{{.node = "a"}}, world.now()).ok());
  world.Commit();
  world.Submit("other", 1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  EXPECT_EQ(world.job("job").interruption(), "");
  EXPECT_EQ(world.job("other").state(), jobs::State::kQueued);
  EXPECT_EQ(RefusalReason(world.cluster().Handle(CordonNode{{.node = "b"}}, world.now())),
            "NODE_NOT_FOUND");
}

TEST(Drain, AnAgentThatStopsGetsNothingNewUntilItsSuccessorComes) {
  World world;
  world.Start("job", 1);
  world.cluster().Handle(1, AgentStops{"SIGTERM"}, world.now());
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

TEST(Drain, AnAgentThatStartsNothingBecauseItStopsIsAskedOnceAndTheJobHasNotFailed) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 0);
  WorkerExit exit{.worker = world.job("job").Worker(0)};
  exit.exit = {.cause = jobs::Exit::Cause::kStartError,
               .start_error = "the agent is stopping",
               .why = jobs::Exit::Why::kAgentStopped};
  world.cluster().Handle(1, exit, world.now());
  world.Commit();
  EXPECT_EQ(world.job("job").generation, 1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world.cluster().overview().View("a").what, NodeView::kDraining);
}

TEST(Cluster, ASlotWhoseProcessCannotBeEndedIsNotUsedAndTheJobGoesOnElsewhere) {
  World world;
  world.Start("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  ASSERT_TRUE(
      world.Report(10, {.sequence = 2, .what = jobs::ReportedFailure{.reason = "boom"}}).ok());
  ASSERT_EQ(world.job("job").generation, 1) << "its process still lives";
  const SlotQuarantine hangs{
      .slot = 0, .worker = id, .pid = 7, .quarantined = true, .reason = "why"};
  world.cluster().Handle(1, hangs, world.now());
  world.Commit();
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world.job("job").generation, 1) << "there is no other slot";
  EXPECT_EQ(world.cluster().overview().QuarantinedSlots("a"), 1);
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
  world.cluster().Handle(3, over, world.now());
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

// A worker of the job on agent 1's node reports that the node cannot run it.
void RefuseOn(World& world, const std::string& id) {
  const membership::WorkerId worker = world.job(id).Worker(0);
  ASSERT_TRUE(world.AttachWorker(10, worker).ok());
  jobs::ReportedFailure failure{.reason = "no such address", .permanent = true};
  failure.code = "NODE_FAULT";
  failure.node_fault = true;
  ASSERT_TRUE(world.Report(10, {.sequence = 1, .what = failure}).ok());
  world.Exit(1, worker, 1);
}

TEST(Cluster, ANodeThatCannotTakeAWorkerFailsTheJobIfThereIsNoOther) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 5);
  RefuseOn(world, "job");
  EXPECT_EQ(world.job("job").state(), jobs::State::kFailed);
  EXPECT_EQ(world.job("job").reason_code, "NODE_FAULT");
  EXPECT_EQ(world.job("job").generation, 1);
}

TEST(Cluster, AJobThatOneNodeCannotTakeGoesOnOnAnother) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("job", 1, 0);
  ASSERT_EQ(world.job("job").ranks[0].node, "a");
  RefuseOn(world, "job");
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
  EXPECT_EQ(world.job("job").restarts_used, 0);
}

// Lets agent 1 send heartbeats for some seconds. Each worker that is started on its node fails.
void PassWithoutStarting(World& world, const std::string& id, int seconds) {
  for (int second = 0; second < seconds; ++second) {
    world.PassBeating(1, 1);
    const jobs::Job& job = world.job(id);
    if (job.live() && job.ranks[0].node == "a") world.FailToStart(1, job.Worker(0));
  }
}

TEST(Cluster, WhereNoNodeStartsItsWorkersTheJobFailsAndTheNodeIsLeftOut) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 0);
  PassWithoutStarting(world, "job", 10);
  const jobs::Job& job = world.job("job");
  EXPECT_EQ(job.generation, 3);
  EXPECT_EQ(job.restarts, 0);
  EXPECT_EQ(job.state(), jobs::State::kFailed);
  EXPECT_EQ(job.reason_code, "WORKER_DID_NOT_START");
  EXPECT_NE(job.state_reason.find("could not be started: no such program"), std::string::npos);
  ASSERT_EQ(world.cluster().overview().View("a").what, NodeView::kLeftOut);
  EXPECT_EQ(world.cluster().overview().OfferedSlots(jobs::Device::kCpu).offered(), 0);
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Pass(1);
  EXPECT_EQ(world.cluster().overview().View("a").what, NodeView::kLeftOut) << "it is stored";
}

TEST(Cluster, WhileABusyNodeMayStartItsWorkersTheJobWaitsForThatNode) {
  World world;
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("other", 1, 0);
  ASSERT_EQ(world.job("other").ranks[0].node, "b");
  ASSERT_TRUE(world.AttachWorker(20, world.job("other").Worker(0)).ok());
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, 0);
  for (int i = 0; i < 5; ++i) {
    world.cluster().AgentHeard(2, world.now());
    PassWithoutStarting(world, "job", 3);
  }
  EXPECT_EQ(world.job("job").generation, 3);
  EXPECT_EQ(world.job("job").state(), jobs::State::kRecovering);
  world.Exit(2, world.job("other").Worker(0), 9);
  world.PassBeating(2, 3);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
}

TEST(Cluster, AJobThatNeedsTheNodeThatStartsNoWorkersFails) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("job", 2, 0);
  for (int i = 0; i < 20 && !world.job("job").terminal(); ++i) {
    world.PassBeating(1, 1);
    world.cluster().AgentHeard(2, world.now());
    const jobs::Job& job = world.job("job");
    if (!job.live() || job.ending()) continue;
    const uint32_t bad = job.ranks[0].node == "a" ? 0 : 1;
    const membership::WorkerId other = job.Worker(1 - bad);
    world.FailToStart(1, job.Worker(bad));
    world.Exit(2, other, 15);
  }
  EXPECT_EQ(world.job("job").generation, 3);
  EXPECT_EQ(world.job("job").reason_code, "WORKER_DID_NOT_START");
}

TEST(Cluster, ANodeOnWhichAJobKeepsFailingIsShownAndTakenLast) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1, /*max_restarts=*/9);
  const auto await_generation = [&](uint64_t generation) {
    for (int i = 0; i < 60 && world.job("job").generation < generation; ++i) {
      world.PassBeating(1, 1);
    }
    ASSERT_EQ(world.job("job").generation, generation);
  };
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    EXPECT_EQ(world.cluster().overview().View("a").reason, "") << generation;
    await_generation(generation);
    ASSERT_TRUE(world.AttachWorker(10 * generation, world.job("job").Worker(0)).ok());
    world.Exit(1, world.job("job").Worker(0), 9);
  }
  EXPECT_EQ(world.cluster().overview().View("a").what, NodeView::kOpen) << "it may be the job";
  const std::string why =
      "3 failures within 10m; the last one: job 'job' generation 3 rank 0: killed by signal 9 "
      "(SIGKILL; perhaps the memory was used up)";
  EXPECT_EQ(world.cluster().overview().View("a").reason, why);
  const jobs::JobEvent& event = world.job("job").events.back();
  EXPECT_EQ(event.reason, "NODE_DOUBTED");
  EXPECT_EQ(event.message, "node 'a' is used only if no other node has room: " + why);
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  await_generation(4);
  EXPECT_EQ(world.job("job").ranks[0].node, "b");
}

TEST(Cluster, SaysWhichRanksAreOnANode) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 2)).ok());
  ASSERT_TRUE(world.Attach(2, Hello("b", 1)).ok());
  world.Submit("three", 3);
  using Ranks = std::map<std::string, std::vector<uint32_t>>;
  EXPECT_EQ(world.cluster().overview().RanksOn("a"), (Ranks{{"three", {0, 1}}}));
  EXPECT_EQ(world.cluster().overview().RanksOn("b"), (Ranks{{"three", {2}}}));
  world.Exit(1, world.job("three").Worker(0), 9);
  EXPECT_EQ(world.cluster().overview().RanksOn("a"), (Ranks{{"three", {1}}}));
  EXPECT_TRUE(world.cluster().overview().RanksOn("none").empty());
}

std::vector<std::string> MarkedNodes(World& world) {
  std::vector<std::string> nodes;
  const store::Image image = *world.store().Load();
  for (const store::NodeMarkRow& mark : image.node_marks) nodes.push_back(mark.node);
  return nodes;
}

TEST(NodeMarks, NamesThatComeAndGoAreForgottenAndWhatAnOperatorSaidIsKept) {
  World world;
  world.limits.node_marks = 3;
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("cordoned", 1)).ok());
  ASSERT_TRUE(world.cluster().Handle(CordonNode{{.node = "cordoned"}}, world.now()).ok());
  world.Commit();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(world.Attach(2, Hello(absl::StrCat("n", i), 1)).ok());
    world.Pass(12);  // the agent's lease is over
  }
  ASSERT_TRUE(world.Attach(2, Hello("here", 1)).ok());
  const std::vector<std::string> nodes = MarkedNodes(world);
  EXPECT_EQ(nodes.size(), 3);
  EXPECT_TRUE(std::count(nodes.begin(), nodes.end(), "cordoned"));
  EXPECT_TRUE(std::count(nodes.begin(), nodes.end(), "here"));
  world.Restart();
  EXPECT_EQ(world.cluster().overview().View("cordoned").what, NodeView::kCordoned);
}

TEST(NodeMarks, OfAForgottenNodeNothingIsLeft) {
  World world;
  const auto forget = [&] {
    const absl::Status forgotten = world.cluster().Handle(ForgetNode{{.node = "a"}}, world.now());
    world.Commit();
    return forgotten;
  };
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.cluster().Handle(CordonNode{{.node = "a"}}, world.now()).ok());
  world.cluster().Detached(1, world.now());
  ASSERT_TRUE(forget().ok());
  EXPECT_TRUE(MarkedNodes(world).empty());
  EXPECT_EQ(world.cluster().overview().View("a").what, NodeView::kOpen);
  ASSERT_TRUE(world.Attach(2, Hello("a", 1)).ok());
  EXPECT_EQ(MarkedNodes(world).size(), 1);
  world.Pass(12);  // the agent's lease is over: only the mark is left
  ASSERT_TRUE(forget().ok());
  EXPECT_TRUE(MarkedNodes(world).empty());
  EXPECT_EQ(RefusalReason(forget()), "NODE_NOT_FOUND");
}

}  // namespace
}  // namespace muster::cluster
