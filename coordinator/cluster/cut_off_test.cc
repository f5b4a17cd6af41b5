// Jobs whose ranks continue to train on a node that is cut off, and nodes that are forgotten.
#include <gtest/gtest.h>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

class CutOffTest : public ::testing::Test {
 protected:
  // A job of one rank trains on node 'a'. Node 'b' is idle.
  CutOffTest() {
    EXPECT_TRUE(world_.Attach(1, Hello("a", 1)).ok());
    Submission submission{.job_id = "job", .name = "job"};
    submission.plan.max_restarts = 0;
    submission.plan.continue_when_cut_off = true;
    EXPECT_TRUE(world_.cluster().Submit(submission, world_.now()).ok());
    world_.Commit();
    EXPECT_TRUE(world_.AttachWorker(10, job().Worker(0)).ok());
    EXPECT_TRUE(world_.Report(10, {.sequence = 1, .what = SessionStarted{}}).ok());
    EXPECT_TRUE(world_.Attach(2, Hello("b", 1)).ok());
  }
  const jobs::Job& job() { return world_.job("job"); }
  // Only node 'b' sends heartbeats.
  void Silence(int seconds) {
    for (int second = 0; second < seconds; ++second) {
      world_.Pass(1);
      world_.cluster().AgentHeard(2, world_.now());
    }
  }
  absl::Status Forget(const std::string& node) {
    const absl::Status status = world_.cluster().Handle(ForgetNode{{.node = node}}, world_.now());
    world_.Commit();
    return status;
  }

  World world_;
};

TEST_F(CutOffTest, TheAgentIsToldThatTheWorkerContinues) {
  ASSERT_EQ(world_.Starts().size(), 1);
  EXPECT_TRUE(world_.Starts()[0].continue_when_cut_off);
}

TEST_F(CutOffTest, ItsRanksAreNotReplacedHoweverLongTheSilence) {
  Silence(3600);
  EXPECT_EQ(job().generation, 1);
  EXPECT_EQ(job().state(), jobs::State::kRunning);
  EXPECT_EQ(job().state_reason,
            "node 'a' is cut off; its ranks are not replaced until its agent is back, or `muster "
            "nodes forget a`");
  EXPECT_NE(world_.cluster().membership().agents().Find("a"), nullptr) << "it is listed";
}

TEST_F(CutOffTest, WhenTheAgentIsBackAllGoesOn) {
  Silence(60);
  AgentHello hello = Hello("a", 1);
  hello.running.push_back({job().Worker(0), 7});
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  ASSERT_TRUE(world_.AttachWorker(11, job().Worker(0)).ok());
  EXPECT_TRUE(world_.Stops().empty());
  EXPECT_EQ(job().state(), jobs::State::kRunning);
  EXPECT_EQ(job().state_reason, "");
  EXPECT_EQ(job().generation, 1);
}

TEST_F(CutOffTest, ACutThatIsLongerThanTheWatchdogIsNoHang) {
  Silence(3600);
  AgentHello hello = Hello("a", 1);
  hello.running.push_back({job().Worker(0), 7});
  ASSERT_TRUE(world_.Attach(3, hello).ok());
  ASSERT_TRUE(world_.AttachWorker(11, job().Worker(0)).ok());
  world_.Pass(2);
  EXPECT_EQ(job().generation, 1);
  EXPECT_EQ(job().state(), jobs::State::kRunning);
}

TEST_F(CutOffTest, AForgottenAgentThatWasBeingStoppedLeavesNoTrace) {
  world_.cluster().Handle(1, AgentStops{"SIGTERM"}, world_.now());
  world_.cluster().Detached(1, world_.now());
  world_.Commit();
  ASSERT_TRUE(Forget("a").ok());
  ASSERT_TRUE(world_.Attach(3, Hello("a", 1, "next")).ok());
  EXPECT_EQ(world_.cluster().overview().OfferedSlots(jobs::Device::kCpu).free("a"), 1);
}

TEST_F(CutOffTest, ARestartOfTheCoordinatorChangesNothing) {
  Silence(60);
  world_.Restart();
  ASSERT_TRUE(world_.Attach(2, Hello("b", 1)).ok());
  Silence(60);
  EXPECT_EQ(job().generation, 1);
  EXPECT_NE(job().state_reason.find("is cut off"), std::string::npos) << job().state_reason;
}

TEST_F(CutOffTest, ForgottenItIsReplacedAtOnceAndUsesNoRestart) {
  Silence(60);
  EXPECT_TRUE(Forget("a").ok());
  EXPECT_EQ(job().generation, 2);
  EXPECT_EQ(job().ranks[0].node, "b");
  EXPECT_EQ(job().restarts, 0);
  EXPECT_EQ(world_.cluster().membership().agents().Find("a"), nullptr);
  EXPECT_EQ(RefusalReason(Forget("a")), "NODE_NOT_FOUND");
}

TEST_F(CutOffTest, ANodeThatIsAttachedCannotBeForgotten) {
  EXPECT_EQ(RefusalReason(Forget("a")), "NODE_ATTACHED");
  EXPECT_EQ(RefusalReason(Forget("c")), "NODE_NOT_FOUND");
  EXPECT_EQ(job().generation, 1);
}

TEST_F(CutOffTest, ANodeThatIsOnlyDetachedCanBeForgotten) {
  world_.cluster().Detached(1, world_.now());
  world_.Commit();
  EXPECT_TRUE(Forget("a").ok());
  EXPECT_EQ(job().generation, 2);
}

}  // namespace
}  // namespace muster::cluster
