#include "common/rpc/connections.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <string>

namespace muster {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

ConnectionLimits Small() {
  return {.silent = 3, .first_byte = absl::Seconds(10), .per_peer = 2, .total = 3};
}

TEST(Connections, OneThatSpeaksIsKept) {
  Connections connections(Small());
  EXPECT_EQ(connections.Arrived(1, "a", kStart), std::nullopt);
  EXPECT_TRUE(connections.Spoke(1));
  EXPECT_EQ(connections.Overdue(kStart + absl::Hours(1)), std::nullopt);
  EXPECT_EQ(connections.spoken(), 1u);
  connections.Ended(1);
  EXPECT_EQ(connections.spoken(), 0u);
}

TEST(Connections, ThePeerWithTheMostSilentOnesLosesItsOldest) {
  Connections connections(Small());
  connections.Arrived(1, "quiet", kStart);
  connections.Arrived(2, "flood", kStart);
  connections.Arrived(3, "flood", kStart);
  EXPECT_EQ(connections.Arrived(4, "flood", kStart), 2);
  EXPECT_EQ(connections.Arrived(5, "flood", kStart), 3);
  EXPECT_TRUE(connections.Spoke(1));
  EXPECT_FALSE(connections.Spoke(2));
}

TEST(Connections, OneThatSpeaksAtOnceIsHeardInAFloodOfItsOwnPeer) {
  Connections connections(Small());
  Connections::Id id = 0;
  for (int i = 0; i < 100; ++i) connections.Arrived(++id, "a", kStart);
  connections.Arrived(++id, "a", kStart);
  EXPECT_TRUE(connections.Spoke(id));
}

TEST(Connections, WhatStaysSilentIsClosedInTime) {
  Connections connections(Small());
  EXPECT_EQ(connections.NextOverdue(), absl::InfiniteFuture());
  connections.Arrived(1, "a", kStart);
  connections.Arrived(2, "b", kStart + absl::Seconds(1));
  EXPECT_EQ(connections.NextOverdue(), kStart + absl::Seconds(10));
  EXPECT_EQ(connections.Overdue(kStart + absl::Seconds(9)), std::nullopt);
  EXPECT_EQ(connections.Overdue(kStart + absl::Seconds(11)), 1);
  EXPECT_EQ(connections.Overdue(kStart + absl::Seconds(11)), 2);
  EXPECT_EQ(connections.Overdue(kStart + absl::Seconds(11)), std::nullopt);
  EXPECT_EQ(connections.silent(), 0u);
}

TEST(Connections, BeyondTheLimitsOfAPeerAndOfAllOnesAreRefusedUntilOthersEnd) {
  Connections connections(Small());
  Connections::Id id = 0;
  const auto speaks = [&](const std::string& peer) {
    connections.Arrived(++id, peer, kStart);
    return connections.Spoke(id);
  };
  EXPECT_TRUE(speaks("a"));  // 1
  EXPECT_TRUE(speaks("a"));
  EXPECT_FALSE(speaks("a"));  // two of one peer
  EXPECT_TRUE(speaks("b"));
  EXPECT_FALSE(speaks("c"));  // three in all
  connections.Ended(1);
  EXPECT_TRUE(speaks("a"));
  EXPECT_EQ(connections.silent(), 0u);
}

TEST(Connections, LimitsFitIntoTheOpenFiles) {
  for (const size_t files : {64u, 256u, 1024u, 1u << 20}) {
    const ConnectionLimits limits = ConnectionLimits::For(files);
    EXPECT_LE(limits.silent + 2 * limits.total, files * 3 / 4) << files;
    EXPECT_LE(limits.per_peer, limits.total) << files;
  }
  EXPECT_EQ(ConnectionLimits::For(1 << 20).total, ConnectionLimits().total);
}

TEST(Connections, AnyOrderOfEventsKeepsTheLimitsAndForgetsNothing) {
  std::mt19937 random(7);
  Connections connections(Small());
  std::set<Connections::Id> silent, spoken;
  Connections::Id next = 0;
  absl::Time now = kStart;
  const auto pick = [&](const std::set<Connections::Id>& from) {
    return *std::next(from.begin(), static_cast<int64_t>(random() % from.size()));
  };
  for (int i = 0; i < 20000; ++i) {
    now += absl::Seconds(random() % 3);
    switch (random() % 5) {
      case 0:
      case 1: {
        silent.insert(++next);
        const auto closed =
            connections.Arrived(next, std::string(1, static_cast<char>('a' + random() % 3)), now);
        if (closed.has_value()) ASSERT_EQ(silent.erase(*closed), 1u);
        break;
      }
      case 2: {
        if (silent.empty()) break;
        const auto id = pick(silent);
        silent.erase(id);
        if (connections.Spoke(id)) spoken.insert(id);
        break;
      }
      case 3: {
        auto& from = random() % 2 == 0 ? silent : spoken;
        if (from.empty()) break;
        const auto id = pick(from);
        from.erase(id);
        connections.Ended(id);
        break;
      }
      case 4:
        while (const auto id = connections.Overdue(now)) ASSERT_EQ(silent.erase(*id), 1u);
        break;
    }
    ASSERT_EQ(connections.silent(), silent.size());
    ASSERT_EQ(connections.spoken(), spoken.size());
    ASSERT_LE(silent.size(), Small().silent);
    ASSERT_LE(spoken.size(), Small().total);
  }
}

}  // namespace
}  // namespace muster
