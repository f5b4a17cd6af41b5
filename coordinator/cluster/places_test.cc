// An agent may only report on the processes of its node.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

// The job of World::Start trains on node 'a' (session 1). No process of the job runs on node 'b'
// (session 2).
class PlacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.Start("job", 1);
    ASSERT_TRUE(world_.Attach(2, Hello("b", 2)).ok());
    world_.effects.clear();
  }
  WorkerId Rank0() { return world_.job("job").Worker(0); }
  void Log(PeerStreamId stream, const WorkerId& worker, const std::string& line) {
    world_.cluster().Handle(stream, LogLines{worker, {line}}, world_.now());
    world_.Commit();
  }
  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    const auto rows = world_.store().ReadLogs("job", 0, std::nullopt, 100);
    if (!rows.ok()) return {rows.status().ToString()};
    for (const store::LogRow& row : *rows) lines.push_back(row.text);
    return lines;
  }
  int Warnings() {
    int warnings = 0;
    for (const Effect& effect : world_.effects) {
      const auto* say = std::get_if<LogMessage>(&effect);
      warnings += say != nullptr && say->text.find("its agent speaks of") != std::string::npos;
    }
    return warnings;
  }

  World world_;
};

TEST_F(PlacesTest, AnExitThatTheAgentOfAnotherNodeReportsEndsNothing) {
  world_.Exit(2, Rank0(), 9);
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRunning);
  EXPECT_EQ(world_.job("job").generation, 1);
  EXPECT_EQ((world_.Orders<SendToAgent, AckExit>().size()), 1) << "it need not say it again";
  AgentHello hello = Hello("b", 2);
  hello.exits.push_back({.worker = Rank0(), .exit = {.number = 1}});
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  EXPECT_EQ(world_.job("job").generation, 1);
  world_.Exit(1, Rank0(), 9);
  EXPECT_EQ(world_.job("job").generation, 2);
}

TEST_F(PlacesTest, ThePidOfARankComesFromItsNode) {
  world_.cluster().Handle(2, RunningWorker{Rank0(), 99}, world_.now());
  world_.Commit();
  EXPECT_EQ(world_.job("job").ranks[0].pid, 0);
  world_.cluster().Handle(1, RunningWorker{Rank0(), 7}, world_.now());
  world_.Commit();
  EXPECT_EQ(world_.job("job").ranks[0].pid, 7);
}

TEST_F(PlacesTest, LogLinesOfAnotherNodesRankAreIgnoredAndThatIsLoggedOnce) {
  Log(2, Rank0(), "forged");
  Log(2, Rank0(), "forged");
  Log(1, Rank0(), "true");
  EXPECT_EQ(Lines(), std::vector<std::string>{"true"});
  EXPECT_EQ(Warnings(), 1);
}

TEST_F(PlacesTest, ReportsOfAnotherNodesRankAreAcknowledgedAndDoNotCount) {
  const auto tell = [&](PeerStreamId stream) {
    world_.cluster().Handle(stream,
                            SpooledReports{Rank0(), {{.sequence = 2, .what = StepDone{.step = 5}}}},
                            world_.now());
    world_.Commit();
  };
  tell(2);
  EXPECT_EQ(world_.job("job").step, 0);
  EXPECT_TRUE(world_.store().ReadMetrics(store::MetricsOf::kSteps, "job", 0, 100)->empty());
  EXPECT_EQ((world_.Orders<SendToAgent, AckSpool>().size()), 1);
  tell(1);
  EXPECT_EQ(world_.job("job").step, 5);
}

TEST_F(PlacesTest, ReportsOfAnotherNodeDoNotKeepASilentRankAlive) {
  for (int i = 0; i < 30; ++i) {
    world_.cluster().Handle(2, SpooledReports{Rank0(), {}}, world_.now());
    world_.cluster().AgentHeard(1, world_.now());
    world_.Pass(1);
  }
  EXPECT_NE(world_.job("job").state(), jobs::State::kRunning);
}

TEST_F(PlacesTest, LateLinesOfAnEarlierGenerationComeFromANodeThatHadTheJob) {
  const WorkerId former = Rank0();
  ASSERT_TRUE(world_.cluster().Handle(CordonNode{{.node = "b"}}, world_.now()).ok());
  world_.Exit(1, former, 9);
  ASSERT_EQ(world_.job("job").generation, 2);
  ASSERT_EQ(world_.job("job").ranks[0].node, "a");
  Log(2, former, "forged");
  world_.cluster().Handle(2, SpooledReports{former, {{.sequence = 2, .what = StepDone{.step = 5}}}},
                          world_.now());
  Log(1, former, "late");
  EXPECT_EQ(Lines(), std::vector<std::string>{"late"});
  EXPECT_TRUE(world_.store().ReadMetrics(store::MetricsOf::kSteps, "job", 0, 100)->empty());
}

// The nodes of earlier generations are not stored.
TEST_F(PlacesTest, AfterARestartLateLinesOfEarlierGenerationsAreTakenFromAnyNode) {
  const WorkerId former = Rank0();
  ASSERT_TRUE(world_.cluster().Handle(CordonNode{{.node = "b"}}, world_.now()).ok());
  world_.Exit(1, former, 9);
  world_.Restart();
  ASSERT_TRUE(world_.Attach(2, Hello("b", 2)).ok());
  Log(2, former, "late");
  Log(2, Rank0(), "forged");
  EXPECT_EQ(Lines(), std::vector<std::string>{"late"});
}

TEST_F(PlacesTest, ARankThatAnotherNodeSaysItRunsIsEndedThere) {
  AgentHello hello = Hello("b", 2);
  hello.running.push_back({Rank0(), 99});
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  ASSERT_EQ(world_.Stops().size(), 1);
  EXPECT_EQ(world_.Stops()[0].worker, Rank0());
  for (const Effect& effect : world_.effects) {
    const auto* send = std::get_if<SendToAgent>(&effect);
    if (send != nullptr && std::holds_alternative<StopWorker>(send->order)) {
      EXPECT_EQ(send->stream, 3);
    }
  }
  EXPECT_EQ(world_.job("job").ranks[0].pid, 0);
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRunning);
}

TEST_F(PlacesTest, NoAgentCanSayThatAJobOfThisCoordinatorRunsInALaterGeneration) {
  AgentHello hello = Hello("b", 2);
  hello.running.push_back({{"job", 7, 0, "x"}, 99});
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRunning);
  EXPECT_EQ(world_.Stops().size(), 1) << "it is ended there";
}

TEST_F(PlacesTest, AGenerationBeyondAllThatADatabaseCanLackIsNobodys) {
  world_.Restart();
  ASSERT_TRUE(world_.Attach(4, Hello("a", 1)).ok());
  AgentHello hello = Hello("b", 2);
  hello.running.push_back({{"job", std::numeric_limits<uint64_t>::max(), 0, "x"}, 99});
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRunning);
  hello.running[0].worker.generation = 1000;
  ASSERT_TRUE(world_.Attach(5, hello).ok());
  EXPECT_EQ(world_.job("job").newest_generation_seen, 1000) << "the database was restored";
  // Only the process's own node can report its end.
  world_.Exit(4, {"job", 1000, 0, "x"}, 9);
  world_.Exit(4, Rank0(), 9);
  const auto pass = [&] {
    for (int i = 0; i < 30; ++i) {
      for (const PeerStreamId agent : {4, 5}) world_.cluster().AgentHeard(agent, world_.now());
      world_.Pass(1);
    }
  };
  pass();
  EXPECT_EQ(world_.job("job").generation, 1);
  world_.Exit(5, {"job", 1000, 0, "x"}, 9);
  pass();
  EXPECT_EQ(world_.job("job").generation, 1001);
}

TEST_F(PlacesTest, OnlySlotsThatTheNodeHasAreLeftOut) {
  const auto quarantine = [&](uint32_t slot, const WorkerId& worker) {
    world_.cluster().Handle(2, SlotQuarantine{.slot = slot, .worker = worker, .quarantined = true},
                            world_.now());
    world_.Commit();
  };
  for (uint32_t slot = 2; slot < 100; ++slot) quarantine(slot, {});
  quarantine(65536, {});
  EXPECT_EQ(world_.cluster().overview().QuarantinedSlots("b"), 0);
  quarantine(1, Rank0());
  EXPECT_EQ(world_.cluster().overview().QuarantinedSlots("b"), 1);
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRunning) << "the rank is on another node";
  AgentHello hello = Hello("b", 2);
  hello.gpus.push_back({.index = 3});
  hello.quarantined_slots = {0, 2, 65536, 65536 + 3};
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  EXPECT_EQ(world_.cluster().overview().QuarantinedSlots("b"), 2);
}

}  // namespace
}  // namespace muster::cluster
