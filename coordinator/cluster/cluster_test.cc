#include "coordinator/cluster/cluster.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

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
  EXPECT_EQ(world.job("job").state(), jobs::State::kRunning);
  world.Pass(1);
  EXPECT_EQ(world.job("job").state(), jobs::State::kStopping);
  const auto orders = world.Orders<SendToWorker, commands::Delivery>();
  ASSERT_EQ(orders.size(), 1);
  EXPECT_EQ(orders[0].command.kind, v1::Operation::STOP);
  EXPECT_EQ(orders[0].command.requested_by, "time_limit");
  world.Restart();
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  ASSERT_TRUE(world.AttachWorker(10, worker).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 3}}).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = Finished{.step = 3}}).ok());
  world.Exit(1, worker, 0);
  EXPECT_EQ(world.job("job").state(), jobs::State::kFailed);
  EXPECT_EQ(world.job("job").state_reason, "it has run for its time_limit, 6s");
  EXPECT_EQ(world.job("job").reason_code, "TIME_LIMIT");
  EXPECT_EQ(world.job("job").commands.Find(1)->outcome->code, absl::StatusCode::kOk);
}

TEST(Cluster, ARankThatHasHadNoInputForLongIsToldOfOnce) {
  World world;
  world.Start("job", 2);
  const auto told = [&] {
    int count = 0;
    for (const Effect& effect : world.effects) {
      const auto* say = std::get_if<LogMessage>(&effect);
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
  const StepDone step{.step = 1, .metrics = "8 samples in 1 s"};
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = step}).ok());
  EXPECT_EQ(world.cluster().overview().NewestSteps("job"), std::deque<std::string>{step.metrics});
  world.Exit(1, world.job("job").Worker(1), 9);
  ASSERT_EQ(world.job("job").state(), jobs::State::kRecovering);
  EXPECT_TRUE(world.cluster().overview().NewestSteps("job").empty());
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
