#include "coordinator/jobs/node_health.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace muster::jobs {
namespace {

absl::Time At(double seconds) { return absl::FromUnixSeconds(1000) + absl::Seconds(seconds); }
using Kind = NodeHealth::Fault::Kind;
NodeHealth::Fault OfPrograms(const std::string& job = "a") {
  return {job, "no program", Kind::kPrograms};
}
NodeHealth::Fault Said(const std::string& job) { return {job, "no mount", Kind::kSaidByWorker}; }

TEST(NodeHealth, ANodeWhoseProgramsFailThreeTimesIsLeftOutForAWhile) {
  NodeHealth health;
  EXPECT_FALSE(health.Failed("n", OfPrograms(), At(0)));
  EXPECT_FALSE(health.Failed("n", OfPrograms(), At(1)));
  EXPECT_EQ(health.Find("n", At(1)), nullptr);
  EXPECT_TRUE(health.Failed("n", OfPrograms(), At(2)));
  ASSERT_NE(health.Find("n", At(2)), nullptr);
  EXPECT_EQ(health.Find("n", At(2))->until, At(62));
  EXPECT_EQ(health.Find("n", At(2))->reason, "3 failures within 10m; the last one: no program");
  EXPECT_EQ(health.Find("n", At(62)), nullptr);
  EXPECT_EQ(health.Find("m", At(2)), nullptr);
}

TEST(NodeHealth, EachTimeItIsLeftOutForLongerUntilAGenerationGetsOn) {
  NodeHealth health;
  const auto fail = [&](double at) {
    for (int i = 0; i < 3; ++i) health.Failed("n", OfPrograms(), At(at));
    return health.Find("n", At(at))->until - At(at);
  };
  EXPECT_EQ(fail(0), absl::Minutes(1));
  EXPECT_EQ(fail(100), absl::Minutes(2));
  for (int i = 0; i < 8; ++i) fail(1000 + i);
  EXPECT_EQ(fail(2000), absl::Hours(1));
  EXPECT_TRUE(health.Forgive("n"));
  EXPECT_FALSE(health.Forgive("n"));
  EXPECT_EQ(health.Find("n", At(2000)), nullptr);
  EXPECT_EQ(fail(3000), absl::Minutes(1));
}

TEST(NodeHealth, FailuresThatAreFarApartDoNotCountTogether) {
  NodeHealth health;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(health.Failed("n", OfPrograms(), At(i * 301))) << i;
}

TEST(NodeHealth, OneJobThatFailsEverywhereIsNoFaultOfTheNodes) {
  NodeHealth health;
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(health.Failed("n", Said("a"), At(i)));
  EXPECT_TRUE(health.Failed("n", Said("b"), At(50)));
}

TEST(NodeHealth, FailuresThatMayBeTheJobsLeaveNoNodeOut) {
  NodeHealth health;
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(health.Failed("n", {absl::StrCat("j", i), "killed"}, At(i)));
  }
  EXPECT_EQ(health.Suspects("j49", At(50)), (std::set<std::string>{"n"}));
  EXPECT_TRUE(health.Suspects("j50", At(50)).empty());
}

TEST(NodeHealth, ANodeOnWhichGenerationsKeepFailingIsDoubtedUntilOneGetsOnThere) {
  NodeHealth health;
  const auto fail = [&](const std::string& job, double at) {
    health.Failed("n", {job, absl::StrCat("job ", job, " was killed")}, At(at));
  };
  fail("a", 0);
  fail("a", 1);
  fail("b", 2);
  EXPECT_EQ(health.Find("n", At(2)), nullptr);
  EXPECT_EQ(health.Doubts("n", At(2)), "3 failures within 10m; the last one: job b was killed");
  EXPECT_EQ(health.Doubts("m", At(2)), "");
  EXPECT_EQ(health.FailuresOf("a", "n", At(2)), 2u);
  EXPECT_EQ(health.FailuresOf("b", "n", At(2)), 1u);
  EXPECT_EQ(health.FailuresOf("a", "m", At(2)), 0u);
  EXPECT_EQ(health.Doubts("n", At(600)), "") << "two are not enough";
  EXPECT_EQ(health.FailuresOf("a", "n", At(600)), 1u);
  health.Forgive("n");
  EXPECT_EQ(health.Doubts("n", At(2)), "");
}

TEST(NodeHealth, ANodeAtFaultIsTakenLast) {
  NodeHealth health;
  health.Failed("n", Said("a"), At(0));
  health.Failed("m", OfPrograms("a"), At(0));
  EXPECT_EQ(health.Suspects("a", At(1)), (std::set<std::string>{"m", "n"}));
  EXPECT_EQ(health.Suspects("b", At(1)), (std::set<std::string>{"m"}));
  EXPECT_TRUE(health.Suspects("a", At(600)).empty());
}

TEST(NodeHealth, WhatWasStoredGoesOn) {
  NodeHealth health;
  for (int i = 0; i < 3; ++i) health.Failed("n", OfPrograms(), At(0));
  NodeHealth restarted;
  restarted.Restore("n", health.Series("n"));
  ASSERT_NE(restarted.Find("n", At(59)), nullptr);
  EXPECT_EQ(*restarted.Find("n", At(59)), *health.Find("n", At(59)));
  for (int i = 0; i < 3; ++i) restarted.Failed("n", OfPrograms(), At(100));
  EXPECT_EQ(restarted.Find("n", At(100))->until, At(220));
}

TEST(NodeHealth, KnowsWhichNodesCouldNotStartWorkersLately) {
  NodeHealth health;
  health.Failed("said", Said("a"), At(0));
  health.Failed("perhaps", {"a", "crash", Kind::kPerhaps}, At(0));
  health.Failed("n", OfPrograms(), At(0));
  EXPECT_EQ(health.CannotStart("j", At(1)), std::set<std::string>{"n"});
  EXPECT_EQ(health.CannotStart("a", At(1)), (std::set<std::string>{"n", "said"}));
  EXPECT_TRUE(health.CannotStart("j", At(601)).empty()) << "that was long ago";
  for (int i = 0; i < 3; ++i) health.Failed("n", OfPrograms(), At(700));
  EXPECT_EQ(health.CannotStart("j", At(9000)), std::set<std::string>{"n"}) << "it was left out";
  health.Forgive("n");
  EXPECT_TRUE(health.CannotStart("j", At(9000)).empty());
}

}  // namespace
}  // namespace muster::jobs
