// The agents and workers that may attach: by name, by incarnation, by protocol.
#include <gtest/gtest.h>

#include <string>

#include "common/version/protocol.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

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
  EXPECT_EQ(world.cluster().membership().agents().Find("a")->stream, 1);
  EXPECT_EQ(world.job("job").generation, 1);
  // The agent's process was killed; its stream may not have broken yet.
  ASSERT_TRUE(world.Attach(3, Known("id", "i2")).ok());
  EXPECT_EQ(world.cluster().membership().agents().Find("a")->stream, 3);
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

TEST(AgentName, AnAgentWithoutAnIdDoesNotEvictOneThatHasAnId) {
  World world;
  ASSERT_TRUE(world.Attach(1, Known("id", "i1")).ok());
  EXPECT_EQ(RefusalReason(world.Attach(2, Hello("a", 1, "old"))), "NODE_NAME_TAKEN");
  EXPECT_EQ(world.cluster().membership().agents().Find("a")->stream, 1);
  world.Restart();
  EXPECT_EQ(RefusalReason(world.Attach(3, Hello("a", 1, "old"))), "NODE_NAME_TAKEN");
  world.Pass(12);  // the lease is over
  EXPECT_TRUE(world.Attach(4, Hello("a", 1, "old")).ok());
}

TEST(AgentName, AnAgentWithAnIdTakesTheNameOverFromOneWithout) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1, "old")).ok());
  EXPECT_TRUE(world.Attach(2, Known("id", "i1")).ok());
  EXPECT_EQ(RefusalReason(world.Attach(3, Hello("a", 1, "old"))), "STALE_INCARNATION");
}

TEST(Cluster, AnOlderAgentProcessIsRefusedAlsoAfterItsLeaseAndARestart) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1, "first")).ok());
  world.Pass(12);
  ASSERT_EQ(world.cluster().membership().agents().Find("a"), nullptr) << "it is lost";
  ASSERT_TRUE(world.Attach(2, Hello("a", 1, "second")).ok());
  EXPECT_EQ(RefusalReason(world.Attach(3, Hello("a", 1, "first"))), "STALE_INCARNATION");
  world.Restart();
  EXPECT_EQ(RefusalReason(world.Attach(4, Hello("a", 1, "first"))), "STALE_INCARNATION");
  EXPECT_TRUE(world.Attach(5, Hello("a", 1, "second")).ok());
}

TEST(Cluster, AProgramThatIsTwoVersionsAwayIsRefused) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("n", 1)).ok());
  world.Submit("job", 1);
  const auto agent = [&](uint32_t protocol) {
    AgentHello hello = Hello("n", 1);
    hello.protocol = protocol;
    return world.Attach(2, hello);
  };
  const auto worker = [&](uint32_t protocol) {
    return world.cluster().AttachWorker(
        10, {.worker = world.job("job").Worker(0), .protocol = protocol}, world.now());
  };
  EXPECT_EQ(RefusalReason(agent(kAgentProtocol - 2)), "AGENT_TOO_OLD");
  EXPECT_EQ(RefusalReason(agent(kAgentProtocol + 2)), "PROGRAM_TOO_NEW");
  EXPECT_EQ(RefusalReason(worker(kWorkerProtocol - 2)), "WORKER_TOO_OLD");
  EXPECT_EQ(RefusalReason(worker(kWorkerProtocol + 2)), "PROGRAM_TOO_NEW");
  for (const int away : {-1, 0, 1}) {
    EXPECT_TRUE(agent(kAgentProtocol + away).ok()) << away;
    EXPECT_TRUE(worker(kWorkerProtocol + away).ok()) << away;
  }
}

TEST(Cluster, AWorkerOfTheVersionBeforeIsRefusedWhereItWouldIgnoreASetting) {
  World world;
  world.Attach(1, Hello("n", 1)).IgnoreError();
  world.Submit("job", jobs::Plan{.worker_protocol = kWorkerProtocol});
  const auto attach = [&](uint32_t protocol) {
    return world.cluster().AttachWorker(
        10, {.worker = world.job("job").Worker(0), .protocol = protocol}, world.now());
  };
  EXPECT_EQ(RefusalReason(attach(kWorkerProtocol - 1)), "WORKER_TOO_OLD");
  EXPECT_TRUE(attach(kWorkerProtocol).ok());
}

TEST(Cluster, AWorkerOfTheVersionBeforeIsRefusedWhereItWouldIgnoreACommand) {
  World world;
  world.Attach(1, Hello("n", 1)).IgnoreError();
  world.Submit("job", 1);
  const auto attach = [&](uint64_t stream, uint32_t protocol) {
    return world.cluster().AttachWorker(
        stream, {.worker = world.job("job").Worker(0), .protocol = protocol}, world.now());
  };
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::SKIP_DATA}).ok());
  EXPECT_EQ(RefusalReason(attach(10, kWorkerProtocol - 1)), "WORKER_TOO_OLD");
  // A cancelled command is carried out by no worker.
  ASSERT_TRUE(attach(11, kWorkerProtocol).ok());
  ASSERT_TRUE(world
                  .Report(11, {.sequence = 1,
                               .what = CommandFinished{1, {.code = absl::StatusCode::kCancelled}}})
                  .ok());
  EXPECT_TRUE(attach(12, kWorkerProtocol - 1).ok());
}

TEST(Cluster, AWorkerOfTheVersionBeforeIsRefusedWhereARetryHasChangedTheRate) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("n", 1)).ok());
  world.Submit("job", 1, 0);
  ASSERT_TRUE(world.AttachWorker(9, world.job("job").Worker(0)).ok());
  world.Exit(1, world.job("job").Worker(0), 9);
  ASSERT_EQ(world.job("job").state(), jobs::State::kFailed);
  CommandRequest retry{.job_id = "job", .command = {.kind = v1::Operation::RESUME}};
  retry.settings = {.spec = "new", .plan = world.job("job").plan, .changes = {}};
  retry.settings.changes.push_back({.path = "optimizer.sgd.lr", .new_value = "0.1"});
  ASSERT_TRUE(world.cluster().NextAttempt(retry, world.now()).ok());
  world.PassBeating(1, 3);
  ASSERT_TRUE(world.job("job").live());
  EXPECT_EQ(world.job("job").spec, "new");
  const auto attach = [&](uint32_t protocol) {
    return world.cluster().AttachWorker(
        10, {.worker = world.job("job").Worker(0), .protocol = protocol}, world.now());
  };
  EXPECT_EQ(RefusalReason(attach(kWorkerProtocol - 1)), "WORKER_TOO_OLD")
      << "it would keep the checkpoint's rate";
  EXPECT_TRUE(attach(kWorkerProtocol).ok());
}

}  // namespace
}  // namespace muster::cluster
