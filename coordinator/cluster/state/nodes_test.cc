#include "coordinator/cluster/state/nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/membership/membership.h"

namespace muster::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

bool AnyAgent(const std::string&) { return true; }
bool NoAgent(const std::string&) { return false; }

AgentHello Hello(const std::string& incarnation, const std::string& id = "id") {
  AgentHello hello{.node = "n", .incarnation = incarnation};
  hello.agent_id = id;
  return hello;
}

NodeRequest Request() { return {.node = "n", .requested_by = "ann"}; }

TEST(Nodes, ADrainIsStoredAndEndsWithUncordon) {
  Nodes nodes({});
  EXPECT_EQ(nodes.Drain(Request()).reason, "muster drain by ann");
  EXPECT_EQ(nodes.View("n", At(0)).what, NodeView::kDraining);
  EXPECT_EQ(nodes.WhyClosed("n", At(0)), "is drained (muster drain by ann)");
  EXPECT_TRUE(nodes.IsBeingEmptied("n"));
  const Nodes::Changes changes = nodes.TakeChanges(9, AnyAgent);
  ASSERT_THAT(changes.marks, SizeIs(1));
  Nodes restarted(changes.marks);
  EXPECT_EQ(restarted.View("n", At(0)).what, NodeView::kDraining);
  restarted.Uncordon(Request());
  EXPECT_EQ(restarted.WhyClosed("n", At(0)), "");
  EXPECT_THAT(nodes.TakeChanges(9, AnyAgent).marks, IsEmpty()) << "they were taken";
}

TEST(Nodes, AnAgentThatStopsIsOpenAgainWithItsNextProcess) {
  Nodes nodes({});
  EXPECT_TRUE(nodes.AgentStops("n", "SIGTERM"));
  EXPECT_FALSE(nodes.AgentStops("n", "again"));
  EXPECT_EQ(nodes.WhyClosed("n", At(0)), "is being stopped (SIGTERM)");
  nodes.Attached(Hello("1"), /*new_process=*/false, {});
  EXPECT_EQ(nodes.View("n", At(0)).what, NodeView::kDraining) << "only its stream broke";
  nodes.Attached(Hello("2"), /*new_process=*/true, {});
  EXPECT_EQ(nodes.View("n", At(0)).what, NodeView::kOpen);
  nodes.StopAgent("n", "musterd stops");
  nodes.Attached(Hello("3"), /*new_process=*/true, {});
  EXPECT_EQ(nodes.View("n", At(0)).what, NodeView::kDraining);
}

TEST(Nodes, ANameIsThatOfTheNewestProcessOfItsAgent) {
  Nodes nodes({});
  nodes.Attached(Hello("1"), true, {});
  nodes.Attached(Hello("2"), true, {});
  membership::Agent holder{.node = "n", .host = "h"};
  EXPECT_TRUE(absl::IsFailedPrecondition(nodes.CheckName(Hello("1"), &holder, {})));
  EXPECT_TRUE(nodes.CheckName(Hello("2"), &holder, {}).ok());
  EXPECT_TRUE(nodes.CheckName(Hello("3"), &holder, {}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(nodes.CheckName(Hello("3", "other"), &holder, {})));
  EXPECT_TRUE(nodes.CheckName(Hello("3", "other"), nullptr, {}).ok()) << "its lease is over";
}

TEST(Nodes, ANodeIsLeftOutUntilItWorks) {
  Nodes nodes({});
  const jobs::NodeHealth::Fault fault{"j", "no program", jobs::NodeHealth::Fault::Kind::kPrograms};
  EXPECT_FALSE(nodes.Failed("n", fault, At(0)));
  EXPECT_FALSE(nodes.Failed("n", fault, At(0)));
  EXPECT_THAT(nodes.TakeChanges(9, AnyAgent).marks, IsEmpty());
  EXPECT_TRUE(nodes.Failed("n", fault, At(0)));
  EXPECT_EQ(nodes.View("n", At(1)).what, NodeView::kLeftOut);
  EXPECT_EQ(nodes.WhyClosed("n", At(1)).find("is left out until 00:01:00 UTC ("), 0u);
  EXPECT_THAT(nodes.TakeChanges(9, AnyAgent).marks, SizeIs(1));
  nodes.Works("n");
  EXPECT_EQ(nodes.View("n", At(1)).what, NodeView::kOpen);
  EXPECT_THAT(nodes.TakeChanges(9, AnyAgent).marks, SizeIs(1));
}

TEST(Nodes, QuarantineLastsUntilTheAgentIsGone) {
  Nodes nodes({});
  nodes.Attached(Hello("1"), true, {3});
  nodes.Quarantine("n", 4, true);
  EXPECT_THAT(nodes.quarantined().at("n"), ElementsAre(3, 4));
  nodes.Quarantine("n", 3, false);
  EXPECT_THAT(nodes.quarantined().at("n"), ElementsAre(4));
  nodes.AgentGone("n");
  EXPECT_THAT(nodes.quarantined(), IsEmpty());
}

TEST(Nodes, BeyondTheLimitOpenNodesWithoutAnAgentAreForgotten) {
  Nodes nodes({{.node = "a"}, {.node = "b", .cordoned = true}, {.node = "c"}});
  EXPECT_THAT(nodes.TakeChanges(1, NoAgent).removed, IsEmpty()) << "none was added";
  nodes.Cordon(Request());
  EXPECT_THAT(nodes.TakeChanges(2, AnyAgent).removed, IsEmpty());
  nodes.Forget("n");
  nodes.Cordon(Request());
  EXPECT_THAT(nodes.TakeChanges(2, NoAgent).removed, ElementsAre("a", "c"));
  EXPECT_TRUE(nodes.Knows("b"));
}

TEST(Nodes, WhatIsForgottenAndMarkedAgainIsStored) {
  Nodes nodes({{.node = "n"}});
  nodes.Forget("n");
  nodes.Cordon(Request());
  const Nodes::Changes changes = nodes.TakeChanges(9, AnyAgent);
  EXPECT_THAT(changes.marks, SizeIs(1));
  EXPECT_THAT(changes.removed, IsEmpty());
}

}  // namespace
}  // namespace muster::cluster
