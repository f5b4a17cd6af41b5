#include "coordinator/membership/membership.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
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

bool Nobody(const std::string&) { return false; }

// Attaches the agent of node "n", which sends a message every second until `until`.
void AgentAnswers(Membership* members, double from, double until) {
  members->agents().Attach(AgentOf("n", "a"), 9, At(from));
  for (double t = from; t <= until; ++t) members->agents().Heard("n", At(t));
}

TEST(Timing, ProcessesAreReplacedAtMostASecondAfterTheirHolderHasEndedThem) {
  for (const double seconds : {1.0, 2.0, 2.5, 3.0, 10.0, 3600.0}) {
    const Timing timing{.lease = absl::Seconds(seconds)};
    EXPECT_GT(timing.Margin(), absl::ZeroDuration());
    EXPECT_LT(timing.Heartbeat(), timing.lease / 2 - timing.Margin()) << "one may be lost";
    EXPECT_GT(timing.Grant(), timing.lease);
    EXPECT_LE(timing.Grant(), timing.lease + absl::Seconds(1));
  }
}

TEST(Agents, ABrokenStreamRenewsNothingWheneverItIsDetected) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  members.agents().Heard("n", At(2));
  EXPECT_TRUE(members.agents().Detached("n", 1));
  EXPECT_FALSE(members.agents().Find("n")->attached());
  EXPECT_TRUE(members.agents().Expire(At(12.9)).empty());
  const auto expired = members.agents().Expire(At(13));
  ASSERT_EQ(expired.size(), 1);
  EXPECT_EQ(expired[0].reason, "the agent of node 'n' was silent for 11s");
  EXPECT_EQ(members.agents().Find("n"), nullptr);
}

TEST(Agents, MessagesRenewTheLeaseAndSilenceOnAnOpenStreamEndsIt) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  members.agents().Heard("n", At(9));
  EXPECT_TRUE(members.agents().Expire(At(19)).empty());
  EXPECT_EQ(members.agents().Expire(At(20)).size(), 1);
}

TEST(Agents, TheEndOfAReplacedStreamDetachesNobody) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  const auto again = members.agents().Attach(AgentOf("n", "a"), 2, At(1));
  EXPECT_EQ(again.replaced, 1);
  EXPECT_FALSE(again.new_incarnation);
  EXPECT_FALSE(members.agents().Detached("n", 1));
  EXPECT_TRUE(members.agents().Find("n")->attached());
}

TEST(Agents, ANewProcessReplacesTheOneOfTheSameName) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  const auto next = members.agents().Attach(AgentOf("n", "b"), 2, At(1));
  EXPECT_TRUE(next.new_incarnation);
  EXPECT_EQ(members.agents().Find("n")->stream, 2);
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
  EXPECT_FALSE(members.WorkerDetached(Id(0, 2), 1));
}

TEST(Workers, BeforeItAttachesOnlyStartUpIsJudged) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  EXPECT_TRUE(members.ExpireWorkers(At(59)).workers.empty());
  const auto expired = members.ExpireWorkers(At(60));
  ASSERT_EQ(expired.workers.size(), 1);
  EXPECT_EQ(expired.workers[0].reason, "did not start: no progress for 1m");
}

TEST(Workers, ProgressBeforeTheSessionExtendsStartUp) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 1, At(1)).ok());
  members.WorkerProgressed(Id(0), 0, "loads weights: 10%", 0, {}, At(50));
  for (int second = 55; second <= 105; second += 5) members.WorkerHeard(Id(0), At(second));
  EXPECT_TRUE(members.ExpireWorkers(At(109)).workers.empty());
  EXPECT_EQ(members.ExpireWorkers(At(110)).workers.size(), 1);
}

TEST(Workers, ADetachedOneIsLostALeaseAfterItWasHeardLast) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 1, At(1)).ok());
  AgentAnswers(&members, 1, 2);
  members.WorkerHeard(Id(0), At(2));
  AgentAnswers(&members, 3, 13);
  EXPECT_TRUE(members.WorkerDetached(Id(0), 1));
  EXPECT_TRUE(members.ExpireWorkers(At(12.9)).workers.empty());
  const auto expired = members.ExpireWorkers(At(13));
  ASSERT_EQ(expired.workers.size(), 1);
  EXPECT_EQ(expired.workers[0].reason, "lost its connection and was silent for 11s");
  EXPECT_TRUE(members.ExpireWorkers(At(100)).workers.empty());
}

TEST(Workers, OneThatWasGivenUpIsRefusedAndIsGoneAtTheLatestWithItsNode) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 1, At(1)).ok());
  AgentAnswers(&members, 1, 12);
  ASSERT_EQ(members.ExpireWorkers(At(12)).workers.size(), 1);
  EXPECT_EQ(RefusalReason(members.AttachWorker(Id(0), 2, At(12)).status()), "STALE_INCARNATION");
  members.WorkerHeard(Id(0), At(12));
  EXPECT_TRUE(members.ExpireWorkers(At(13)).gone.empty());
  members.LoseNode(
      "n", [](const std::string&) { return false; }, At(23));
  EXPECT_EQ(members.ExpireWorkers(At(23)).gone.size(), 1);
}

TEST(Workers, ATimeWithoutConnectionDoesNotCountAsHanging) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 1, At(1)).ok());
  members.SessionStarted(Id(0), At(1));
  members.WorkerProgressed(Id(0), 5, "training", 0, {}, At(2));
  // The worker's node was cut off, and the worker continued to train.
  members.agents().Attach(AgentOf("n", "a"), 9, At(5000));
  ASSERT_TRUE(members.AttachWorker(Id(0), 2, At(5000)).ok());
  EXPECT_TRUE(members.ExpireWorkers(At(5001)).workers.empty());
}

TEST(Workers, OneWithoutProgressHangsAlthoughItSendsHeartbeats) {
  Membership members(kTiming);
  for (uint32_t rank : {0, 1}) {
    members.ExpectWorker(Id(rank), "n", false, At(0));
    ASSERT_TRUE(members.AttachWorker(Id(rank), rank + 1, At(1)).ok());
    members.SessionStarted(Id(rank), At(1));
  }
  // Rank 0 stops first: it waits for rank 1, which computes and then hangs.
  EXPECT_TRUE(members.WorkerProgressed(Id(0), 5, "training", 0, {.begun = 9, .ended = 7}, At(2)));
  EXPECT_TRUE(members.WorkerProgressed(Id(1), 5, "training", 0, {.begun = 7, .ended = 7}, At(3)));
  for (double t = 4; t <= 303; t += 1) {
    for (uint32_t rank : {0, 1}) members.WorkerHeard(Id(rank), At(t));
    if (t < 303) EXPECT_TRUE(members.ExpireWorkers(At(t)).workers.empty()) << t;
  }
  const auto expired = members.ExpireWorkers(At(303));
  ASSERT_EQ(expired.workers.size(), 1);
  EXPECT_EQ(expired.workers[0].worker.id.rank, 1);
  EXPECT_TRUE(absl::StartsWith(expired.workers[0].reason,
                               "made no progress for 5m at step 5 (last: training); it is behind"))
      << expired.workers[0].reason;
}

// The heartbeat of the slow rank comes before the heartbeats of the ranks that waited for it.
TEST(Workers, OneThatHasWaitedForASlowRankHasItsWholeTimeAgain) {
  Membership members(kTiming);
  for (uint32_t rank : {0, 1}) {
    members.ExpectWorker(Id(rank), "n", false, At(0));
    ASSERT_TRUE(members.AttachWorker(Id(rank), rank + 1, At(1)).ok());
    members.SessionStarted(Id(rank), At(1));
  }
  members.WorkerProgressed(Id(0), 5, "validating", 0, {.begun = 13, .ended = 12}, At(2));
  double t = 3;
  for (uint64_t activity = 1; t < 1000; ++t, ++activity) {
    members.WorkerProgressed(Id(1), 5, "validating", activity, {.begun = 12, .ended = 12}, At(t));
    members.WorkerHeard(Id(0), At(t));
    ASSERT_TRUE(members.ExpireWorkers(At(t)).workers.empty()) << t;
  }
  members.WorkerProgressed(Id(1), 9, "training", 5000, {.begun = 25, .ended = 25}, At(t));
  for (; t < 999 + 300; ++t) {
    for (uint32_t rank : {0, 1}) members.WorkerHeard(Id(rank), At(t));
    ASSERT_TRUE(members.ExpireWorkers(At(t)).workers.empty()) << t;
  }
  for (uint32_t rank : {0, 1}) members.WorkerHeard(Id(rank), At(t));
  const auto expired = members.ExpireWorkers(At(t));
  ASSERT_EQ(expired.workers.size(), 1) << "it hangs after all";
  EXPECT_EQ(expired.workers[0].worker.id.rank, 0);
}

TEST(Workers, WhateverChangesInAHeartbeatIsProgress) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0));
  members.SessionStarted(Id(0), At(0));
  const Collectives none{.begun = 1};
  const auto beat = [&](uint64_t activity, const Collectives& collectives, double t) {
    members.WorkerProgressed(Id(0), 5, "training", activity, collectives, At(t));
    return members.FindWorker("job", 0)->progressed;
  };
  EXPECT_EQ(beat(1, none, 1), At(1));
  EXPECT_EQ(beat(1, none, 2), At(1));
  EXPECT_EQ(beat(2, none, 3), At(3));
  EXPECT_EQ(beat(2, {.begun = 2}, 4), At(4));
  EXPECT_EQ(beat(2, {.begun = 2, .ended = 1}, 5), At(5));
}

TEST(Workers, TheLimitsThatAJobSetsAreTheOnesThatCount) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", false, At(0),
                       ProgressLimits{absl::Seconds(3), absl::Seconds(7)});
  EXPECT_TRUE(members.ExpireWorkers(At(6.9)).workers.empty());
  EXPECT_EQ(members.ExpireWorkers(At(7)).workers.size(), 1);
  members.ExpectWorker(Id(0), "n", false, At(10),
                       ProgressLimits{absl::Seconds(3), absl::Seconds(7)});
  members.SessionStarted(Id(0), At(11));
  EXPECT_TRUE(members.ExpireWorkers(At(13.9)).workers.empty());
  EXPECT_EQ(members.ExpireWorkers(At(14)).workers.size(), 1);
}

TEST(Ladder, ACollectiveTimesOutAfterTheWatchdogOfTheJob) {
  EXPECT_EQ(kTiming.CollectiveTimeout(kTiming.DefaultProgressLimits()), absl::Minutes(10));
  EXPECT_EQ(kTiming.CollectiveTimeout({.no_progress = absl::Hours(1)}), absl::Hours(2));
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
  EXPECT_TRUE(members.ExpireWorkers(At(1000)).workers.empty());
}

TEST(Workers, AfterARestartTheyHaveOneLeaseToAttachOnceTheirAgentHas) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", true, At(0));
  AgentAnswers(&members, 9, 20);
  EXPECT_TRUE(members.ExpireWorkers(At(19.9)).workers.empty());
  EXPECT_EQ(members.ExpireWorkers(At(20)).workers.size(), 1);
}

// At most two heartbeat intervals of a gap between messages count.
TEST(Workers, AGapOfTheirNodeIsNoTimeInWhichTheyWereSilentAlone) {
  Membership members(kTiming);
  AgentAnswers(&members, 0, 4);
  members.ExpectWorker(Id(0), "n", true, At(0));
  AgentAnswers(&members, 14, 16);
  EXPECT_TRUE(members.ExpireWorkers(At(16.9)).workers.empty());
  EXPECT_EQ(members.ExpireWorkers(At(17)).workers.size(), 1);
}

TEST(Workers, OneThatIsSilentIsLostAlsoWhereItsAgentIsHeardIrregularly) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 9, At(0));
  members.ExpectWorker(Id(0), "n", true, At(0));
  for (double t = 6; t <= 18; t += 6) {
    EXPECT_TRUE(members.ExpireWorkers(At(t)).workers.empty()) << t;
    members.agents().Heard("n", At(t));
  }
  EXPECT_EQ(members.ExpireWorkers(At(18)).workers.size(), 1);
}

TEST(Workers, AnotherStreamOfTheirAgentAtOnceIsNoGap) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "n", true, At(0));
  AgentAnswers(&members, 0, 4);
  AgentAnswers(&members, 6, 11);
  EXPECT_EQ(members.ExpireWorkers(At(11)).workers.size(), 1);
}

TEST(Workers, OfALostNodeAreIgnoredAndEndWithTheirOwnLease) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "lost", false, At(0));
  members.ExpectWorker(Id(1), "lost", false, At(0));
  members.ExpectWorker(Id(2), "well", false, At(0));
  ASSERT_TRUE(members.AttachWorker(Id(0), 7, At(1)).ok());
  members.WorkerHeard(Id(0), At(5));
  EXPECT_EQ(members.LoseNode("lost", Nobody, At(6)), std::vector<PeerStreamId>{7});
  members.WorkerHeard(Id(0), At(7));
  EXPECT_EQ(RefusalReason(members.AttachWorker(Id(0), 8, At(7)).status()), "STALE_INCARNATION");
  EXPECT_EQ(RefusalReason(members.AttachWorker(Id(1), 9, At(7)).status()), "STALE_INCARNATION");
  EXPECT_TRUE(members.AttachWorker(Id(2), 10, At(7)).ok());
  const auto at_once = members.ExpireWorkers(At(7)).gone;
  ASSERT_EQ(at_once.size(), 1);
  EXPECT_EQ(at_once[0].id.rank, 1) << "it never attached, so it holds no lease";
  EXPECT_TRUE(members.ExpireWorkers(At(15.9)).gone.empty());
  const auto gone = members.ExpireWorkers(At(16)).gone;
  ASSERT_EQ(gone.size(), 1);
  EXPECT_EQ(gone[0].id.rank, 0);
}

TEST(Workers, OfALostNodeStayExpectedWhereTheirJobContinues) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("lost", "a"), 1, At(0));
  members.ExpectWorker(Id(0), "lost", true, At(0));
  const auto lost = members.agents().Expire(At(11));
  ASSERT_EQ(lost.size(), 1);
  EXPECT_TRUE(members
                  .LoseNode(
                      "lost", [](const std::string& job) { return job == "job"; }, At(11))
                  .empty());
  members.agents().ExpectForGood(lost[0].agent);
  for (double t : {12.0, 100.0, 100000.0}) {
    EXPECT_TRUE(members.agents().Expire(At(t)).empty()) << t;
    const auto expired = members.ExpireWorkers(At(t));
    EXPECT_TRUE(expired.workers.empty()) << t;
    EXPECT_TRUE(expired.gone.empty()) << t;
    members.Grant(Grace::kAll, At(t));
  }
  members.agents().Attach(AgentOf("lost", "a"), 2, At(100001));
  EXPECT_TRUE(members.AttachWorker(Id(0), 3, At(100001)).ok());
}

TEST(Workers, OfALostNodeAreGoneAlsoWhereTheyWereReleased) {
  Membership members(kTiming);
  members.ExpectWorker(Id(0), "lost", true, At(0));
  members.Release("job", 0);
  members.LoseNode("lost", Nobody, At(1));
  EXPECT_EQ(members.ExpireWorkers(At(11)).gone.size(), 1);
}

TEST(Grace, AfterAPauseOfTheCoordinatorAllLeasesStartAgain) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  members.ExpectWorker(Id(0), "n", true, At(0));
  members.ExpectWorker(Id(1), "n", false, At(0));
  members.Grant(Grace::kAll, At(500));
  EXPECT_TRUE(members.agents().Expire(At(510)).empty());
  EXPECT_TRUE(members.ExpireWorkers(At(510)).workers.empty());
  EXPECT_EQ(members.agents().Expire(At(511)).size(), 1);
  EXPECT_TRUE(members.ExpireWorkers(At(511)).workers.empty())
      << "the whole node is silent: that is its agent's to be judged by";
}

TEST(Grace, AStreamThatBrokeWhileAttachingWasRefusedGivesAWholeLeaseWheneverItIsReported) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  members.agents().Attach(AgentOf("told before", "a"), 2, At(0));
  members.agents().Attach(AgentOf("silent", "a"), 3, At(0));
  EXPECT_TRUE(members.agents().Detached("told before", 2));
  members.Grant(Grace::kWithoutStream, At(10));
  EXPECT_TRUE(members.agents().Detached("n", 1));
  const auto silent = members.agents().Expire(At(11));
  ASSERT_EQ(silent.size(), 1) << "it has a stream, and could have been heard";
  EXPECT_EQ(silent[0].agent.node, "silent");
  EXPECT_TRUE(members.agents().Expire(At(20.9)).empty());
  EXPECT_EQ(members.agents().Expire(At(21)).size(), 2);
}

TEST(Workers, ASilentOneIsNotBlamedForTheSilenceOfItsNode) {
  Membership members(kTiming);
  members.agents().Attach(AgentOf("n", "a"), 1, At(0));
  members.ExpectWorker(Id(0), "n", true, At(0));
  members.agents().Heard("n", At(2));
  // Both are cut off after that: the worker's lease ends first.
  EXPECT_TRUE(members.agents().Expire(At(12)).empty());
  EXPECT_TRUE(members.ExpireWorkers(At(12)).workers.empty());
  EXPECT_EQ(members.agents().Expire(At(13)).size(), 1);
  EXPECT_TRUE(members.ExpireWorkers(At(13)).workers.empty());
}

}  // namespace
}  // namespace muster::membership
