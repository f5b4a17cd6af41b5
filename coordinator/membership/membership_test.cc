#include "coordinator/membership/membership.h"

#include <gtest/gtest.h>

#include "coordinator/membership/refusal.h"

namespace muster::membership {
namespace {

constexpr Timing kTiming{.lease = absl::Seconds(10), .startup = absl::Seconds(60)};
const absl::Time kStart = absl::FromUnixSeconds(1000);

absl::Time At(double seconds) { return kStart + absl::Seconds(seconds); }
Agent AgentOf(const std::string& node, const std::string& incarnation) {
  return {.node = node, .incarnation = incarnation, .slots = 2};
}
WorkerId Id(uint32_t rank, uint64_t generation = 1, const std::string& incarnation = "i") {
  return {"job", generation, rank, incarnation};
}

TEST(Agents, ABrokenStreamLeavesOneLeaseToComeBack) {
  Membership members(kTiming);
  ASSERT_TRUE(members.AttachAgent(AgentOf("n", "a"), 1, At(0)).ok());
  EXPECT_TRUE(members.AgentDetached("n", 1, At(5)));
  EXPECT_FALSE(members.FindAgent("n")->attached());
  EXPECT_TRUE(members.Expire(At(14.9)).agents.empty());
  const auto expired = members.Expire(At(15));
  ASSERT_EQ(expired.agents.size(), 1);
  EXPECT_EQ(expired.agents[0].reason, "the agent of node 'n' was not heard of for 10s");
  EXPECT_EQ(members.FindAgent("n"), nullptr);
}

TEST(Agents, HearingRenewsTheLeaseAndSilenceOnAnOpenStreamEndsIt) {
  Membership members(kTiming);
  ASSERT_TRUE(members.AttachAgent(AgentOf("n", "a"), 1, At(0)).ok());
  members.AgentHeard("n", At(9));
  EXPECT_TRUE(members.Expire(At(18)).agents.empty());
  EXPECT_EQ(members.Expire(At(19)).agents.size(), 1);
}

TEST(Agents, TheEndOfAReplacedStreamDetachesNobody) {
  Membership members(kTiming);
  ASSERT_TRUE(members.AttachAgent(AgentOf("n", "a"), 1, At(0)).ok());
  const auto again = members.AttachAgent(AgentOf("n", "a"), 2, At(1));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->replaced, 1);
  EXPECT_FALSE(again->new_incarnation);
  EXPECT_FALSE(members.AgentDetached("n", 1, At(2)));
  EXPECT_TRUE(members.FindAgent("n")->attached());
}

TEST(Agents, ANewProcessTakesTheNameOverAndTheFormerIsRefused) {
  Membership members(kTiming);
  ASSERT_TRUE(members.AttachAgent(AgentOf("n", "a"), 1, At(0)).ok());
  const auto next = members.AttachAgent(AgentOf("n", "b"), 2, At(1));
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->new_incarnation);
  const auto former = members.AttachAgent(AgentOf("n", "a"), 3, At(2));
  EXPECT_EQ(RefusalReason(former.status()), "STALE_INCARNATION");
  EXPECT_EQ(members.FindAgent("n")->session, 2);
}

TEST(Workers, OnlyTheExpectedProcessAttaches) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0, 2), "n", false, At(0));
  EXPECT_EQ(RefusalReason(members.AttachWorker(Id(0, 1), 1, At(1)).status()), "STALE_GENERATION");
  EXPECT_EQ(RefusalReason(members.AttachWorker(Id(0, 2, "x"), 1, At(1)).status()),
            "STALE_INCARNATION");
  EXPECT_EQ(RefusalReason(members.AttachWorker(Id(1, 2), 1, At(1)).status()), "STALE_INCARNATION");
  EXPECT_TRUE(members.AttachWorker(Id(0, 2), 1, At(1)).ok());
  EXPECT_EQ(*members.AttachWorker(Id(0, 2), 2, At(2)), 1);
  EXPECT_FALSE(members.WorkerDetached(Id(0, 2), 1, At(3)));
}

TEST(Workers, BeforeItAttachesOnlyStartUpIsJudged) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  EXPECT_TRUE(members.Expire(At(59)).workers.empty());
  const auto expired = members.Expire(At(60));
  ASSERT_EQ(expired.workers.size(), 1);
  EXPECT_EQ(expired.workers[0].reason, "did not start within 1m");
}

TEST(Workers, ProgressBeforeTheSessionExtendsStartUp) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 1, At(1)).ok());
  members.WorkerProgressed(Id(0), 0, "loads weights: 10%", 0, At(50));
  members.WorkerHeard(Id(0), At(105));
  EXPECT_TRUE(members.Expire(At(109)).workers.empty());
  EXPECT_EQ(members.Expire(At(110)).workers.size(), 1);
}

TEST(Workers, ADetachedOneIsLostAfterALease) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 1, At(1)).ok());
  EXPECT_TRUE(members.WorkerDetached(Id(0), 1, At(2)));
  EXPECT_TRUE(members.Expire(At(11)).workers.empty());
  const auto expired = members.Expire(At(12));
  ASSERT_EQ(expired.workers.size(), 1);
  EXPECT_EQ(expired.workers[0].reason, "lost its connection for 10s");
  EXPECT_TRUE(members.Expire(At(100)).workers.empty());
}

TEST(Workers, OneThatStandsStillHangsAlthoughItBeats) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  members.ExpectWorker(Id(1), "n", false, At(0));
  for (uint32_t rank : {0, 1}) {
    ASSERT_TRUE(members.AttachWorker(Id(rank), rank + 1, At(1)).ok());
    members.SessionStarted(Id(rank), At(1));
  }
  // Rank 1 stops moving first, the other one waits for it from then on.
  EXPECT_TRUE(members.WorkerProgressed(Id(1), 5, "forward", 0, At(2)));
  EXPECT_TRUE(members.WorkerProgressed(Id(0), 5, "all_reduce 'bucket 0'", 0, At(3)));
  for (double t = 4; t <= 303; t += 1) {
    for (uint32_t rank : {0, 1}) members.WorkerHeard(Id(rank), At(t));
    if (t < 302) EXPECT_TRUE(members.Expire(At(t)).workers.empty()) << t;
  }
  const auto expired = members.Expire(At(303));
  ASSERT_EQ(expired.workers.size(), 2);
  EXPECT_EQ(expired.workers[0].worker.id.rank, 1);
  EXPECT_EQ(expired.workers[0].reason, "made no progress for 5m1s at step 5 (last: forward)");
}

TEST(Workers, TheMemoryIsThatOfTheLastHeartbeatOfTheProcess) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0, 1), "n", false, At(0));
  EXPECT_EQ(members.FindWorker("job", 0)->memory, "");
  members.WorkerMemory(Id(0, 1), "much");
  members.WorkerMemory(Id(0, 1), "more");
  members.WorkerMemory(Id(0, 1, "x"), "another's");
  members.WorkerMemory(Id(1, 1), "nobody's");
  EXPECT_EQ(members.FindWorker("job", 0)->memory, "more");
  members.ExpectWorker(Id(0, 2), "n", false, At(1));
  EXPECT_EQ(members.FindWorker("job", 0)->memory, "") << "of the process before it";
}

TEST(Workers, AReleasedOneIsNotJudged) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", true, At(0));
  members.Release("job", 0);
  EXPECT_TRUE(members.Expire(At(1000)).workers.empty());
}

TEST(Workers, AfterARestartTheyHaveOneLeaseToComeBack) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", true, At(0));
  EXPECT_TRUE(members.Expire(At(9)).workers.empty());
  EXPECT_EQ(members.Expire(At(10)).workers.size(), 1);
}

TEST(Grace, AfterTheCoordinatorsOwnPauseEverybodyGetsTimeAnew) {
  Membership members(kTiming);
  ASSERT_TRUE(members.AttachAgent(AgentOf("n", "a"), 1, At(0)).ok());
  members.ExpectWorker(Id(0), "n", true, At(0));
  members.ExpectWorker(Id(1), "n", false, At(0));
  members.GrantFreshGrace(At(500));
  const auto none = members.Expire(At(509));
  EXPECT_TRUE(none.agents.empty());
  EXPECT_TRUE(none.workers.empty());
  const auto later = members.Expire(At(510));
  EXPECT_EQ(later.agents.size(), 1);
  // The one that never attached still starts up.
  EXPECT_EQ(later.workers.size(), 1);
}

}  // namespace
}  // namespace muster::membership
