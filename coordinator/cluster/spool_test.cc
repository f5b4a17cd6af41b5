// Reports that workers left with their agents while the coordinator was away.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

cluster::Report Step(uint64_t sequence, uint64_t step) {
  return {.sequence = sequence, .what = StepDone{.step = step}};
}

// The job of World::Start after a restart of the coordinator. The agent is back as `incarnation`,
// and reports for the workers.
class SpoolTest : public ::testing::Test {
 protected:
  void ComeBack(const std::string& incarnation, uint32_t world_size = 1) {
    world_.Restart();
    world_.effects.clear();
    AgentHello hello = Hello("a", world_size, incarnation);
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      hello.running.push_back({world_.job("job").Worker(rank), 7});
    }
    ASSERT_TRUE(world_.Attach(2, hello).ok());
  }
  void Tell(const WorkerId& worker, const std::vector<cluster::Report>& reports) {
    world_.cluster().Handle(2, SpooledReports{worker, reports}, world_.now());
    world_.Commit();
  }
  std::vector<AckSpool> Acks() { return world_.Orders<SendToAgent, AckSpool>(); }

  World world_;
};

TEST_F(SpoolTest, AJobThatWasDoneMeanwhileSucceeds) {
  world_.Start("job", 1);
  ComeBack("a");
  const WorkerId worker = world_.job("job").Worker(0);
  Tell(worker, {Step(2, 1), Step(3, 2), {.sequence = 4, .what = CheckpointWritten{2, "p"}}});
  ASSERT_EQ(Acks().size(), 1);
  EXPECT_EQ(Acks()[0].sequence, 4);
  Tell(worker, {{.sequence = 5, .what = cluster::Finished{.step = 2}}});
  WorkerExit exit{.worker = worker};
  world_.cluster().Handle(2, exit, world_.now());
  world_.Commit();
  EXPECT_EQ(world_.job("job").state(), jobs::State::kSucceeded);
  EXPECT_EQ(world_.job("job").step, 2);
  EXPECT_EQ(world_.job("job").checkpoints.size(), 1);
}

TEST_F(SpoolTest, ANewAgentForwardsTheReportsThatTheOldAgentsWorkersLeft) {
  world_.Start("job", 2);
  ComeBack("b", 2);
  EXPECT_TRUE(world_.Stops().empty());
  for (uint32_t rank : {0, 1}) {
    Tell(world_.job("job").Worker(rank), {{.sequence = 2, .what = cluster::Finished{.step = 1}}});
  }
  for (uint32_t rank : {0, 1}) world_.Exit(2, world_.job("job").Worker(rank), 9);
  EXPECT_EQ(world_.job("job").state(), jobs::State::kSucceeded);
}

TEST_F(SpoolTest, WhatWasTakenBeforeIsNotTakenAgain) {
  world_.Start("job", 1);
  ASSERT_TRUE(world_.Report(10, {.sequence = 2, .what = CheckpointWritten{1, "p1"}}).ok());
  ComeBack("a");
  const WorkerId worker = world_.job("job").Worker(0);
  Tell(worker, {{.sequence = 2, .what = CheckpointWritten{1, "p1"}}, Step(3, 2)});
  EXPECT_EQ(world_.job("job").checkpoints.size(), 1);
  EXPECT_EQ(world_.job("job").step, 2);
}

// The database is older than the reports. The process reported its end in a course of training that
// the database does not know.
TEST_F(SpoolTest, BehindAGapOnlyWhatWasMeasuredIsTakenAndTheJobGoesOnWithAnotherGeneration) {
  world_.Start("job", 1);
  ComeBack("a");
  Tell(world_.job("job").Worker(0), {Step(9, 8), {.sequence = 10, .what = Finished{.step = 8}}});
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRecovering);
  EXPECT_EQ(world_.job("job").interruption(),
            "reports 2 to 8 of rank 0 were acknowledged and are missing here: was the database "
            "restored?");
  EXPECT_EQ(world_.job("job").ranks[0].acked_report, 1);
  EXPECT_EQ(Acks().size(), 1);
  world_.Commit();
  const auto steps = world_.store().ReadMetrics(store::MetricsOf::kSteps, "job", 0, 100);
  ASSERT_TRUE(steps.ok());
  ASSERT_EQ(steps->size(), 1);
  EXPECT_EQ(steps->front().step, 8);
}

TEST_F(SpoolTest, WhatNobodyNeedsIsAcknowledged) {
  world_.Start("job", 1);
  ComeBack("a");
  WorkerId other = world_.job("job").Worker(0);
  other.generation = 7;
  Tell(other, {Step(2, 1)});
  EXPECT_EQ(Acks().size(), 1);
  EXPECT_EQ(world_.job("job").step, 0);
}

TEST_F(SpoolTest, WhatACutOffRank0MeasuredIsTakenUpToWhereTheNextGenerationBegan) {
  world_.Start("job", 1);
  const WorkerId former = world_.job("job").Worker(0);
  world_.Exit(1, former, 9);
  ASSERT_EQ(world_.job("job").generation, 2);
  const WorkerId next = world_.job("job").Worker(0);
  ASSERT_TRUE(world_.AttachWorker(20, next).ok());
  ASSERT_TRUE(world_.Report(20, {.sequence = 1, .what = SessionStarted{.step = 2}}).ok());
  ASSERT_TRUE(world_.Report(20, Step(2, 3)).ok());
  world_.cluster().Handle(1, SpooledReports{former, {Step(2, 1), Step(3, 2), Step(4, 3)}},
                          world_.now());
  world_.Commit();
  std::vector<std::pair<uint64_t, uint64_t>> rows;
  const auto steps = world_.store().ReadMetrics(store::MetricsOf::kSteps, "job", 0, 100);
  ASSERT_TRUE(steps.ok());
  for (const store::MetricsRow& row : *steps) rows.emplace_back(row.step, row.generation);
  EXPECT_EQ(rows, (std::vector<std::pair<uint64_t, uint64_t>>{{1, 1}, {2, 1}, {3, 2}}));
  EXPECT_EQ(world_.job("job").step, 3) << "where it is has not changed";
}

TEST_F(SpoolTest, WhoseAgentTellsItsReportsIsNotLost) {
  world_.Start("job", 1);
  ComeBack("a");
  const WorkerId worker = world_.job("job").Worker(0);
  for (uint64_t n = 2; n < 32; ++n) {
    Tell(worker, {Step(n, n)});
    world_.Pass(1);
  }
  EXPECT_EQ(world_.job("job").state(), jobs::State::kRunning);
}

}  // namespace
}  // namespace muster::cluster
