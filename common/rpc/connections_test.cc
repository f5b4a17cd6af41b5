#include "common/rpc/connections.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <string>

namespace muster {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

constexpr absl::Duration kTrial = absl::Seconds(11);

ConnectionLimits Small() {
  return {.silent = 3,
          .handshake = absl::Seconds(10),
          .trial = kTrial,
          .local = 4,
          .per_peer = 2,
          .total = 3};
}

class ConnectionsTest : public testing::Test {
 protected:
  std::optional<Connections::Id> Arrives(Connections::Id id, const std::string& peer) {
    return connections_.Arrived(id, Transport::kTcp, peer, now_);
  }
  // Adds a connection that speaks at once. Returns the connection that must be closed.
  std::optional<Connections::Id> Speaks(const std::string& peer,
                                        Transport transport = Transport::kTcp) {
    EXPECT_EQ(connections_.Arrived(++last_, transport, peer, now_), std::nullopt);
    return connections_.Spoke(last_, now_);
  }

  absl::Time now_ = kStart;
  Connections::Id last_ = 0;
  Connections connections_{Small()};
};

TEST_F(ConnectionsTest, OneThatSpeaksIsKept) {
  EXPECT_EQ(Arrives(1, "a"), std::nullopt);
  EXPECT_EQ(connections_.Spoke(1, kStart), std::nullopt);
  EXPECT_EQ(connections_.Overdue(kStart + absl::Hours(1)), std::nullopt);
  EXPECT_EQ(connections_.spoken(), 1u);
  connections_.Ended(1);
  EXPECT_EQ(connections_.spoken(), 0u);
}

TEST_F(ConnectionsTest, ThePeerWithTheMostSilentOnesLosesItsOldest) {
  Arrives(1, "quiet");
  Arrives(2, "flood");
  Arrives(3, "flood");
  EXPECT_EQ(Arrives(4, "flood"), 2);
  EXPECT_EQ(Arrives(5, "flood"), 3);
  EXPECT_EQ(connections_.Spoke(1, kStart), std::nullopt);
  EXPECT_EQ(connections_.Spoke(2, kStart), 2) << "it is forgotten";
}

TEST_F(ConnectionsTest, OneThatSpeaksAtOnceIsHeardInAFloodOfItsOwnPeer) {
  Connections::Id id = 0;
  for (int i = 0; i < 100; ++i) Arrives(++id, "a");
  Arrives(++id, "a");
  EXPECT_EQ(connections_.Spoke(id, kStart), std::nullopt);
}

TEST_F(ConnectionsTest, WhatStaysSilentIsClosedInTime) {
  EXPECT_EQ(connections_.NextOverdue(), absl::InfiniteFuture());
  Arrives(1, "a");
  now_ += absl::Seconds(1);
  Arrives(2, "b");
  EXPECT_EQ(connections_.NextOverdue(), kStart + absl::Seconds(10));
  EXPECT_EQ(connections_.Overdue(kStart + absl::Seconds(9)), std::nullopt);
  EXPECT_EQ(connections_.Overdue(kStart + absl::Seconds(11)), 1);
  EXPECT_EQ(connections_.Overdue(kStart + absl::Seconds(11)), 2);
  EXPECT_EQ(connections_.Overdue(kStart + absl::Seconds(11)), std::nullopt);
  EXPECT_EQ(connections_.silent(), 0u);
}

TEST_F(ConnectionsTest, AFloodOfOneByteLosesItsOldestToANewOne) {
  EXPECT_EQ(Speaks("flood"), std::nullopt);  // 1
  EXPECT_EQ(Speaks("flood"), std::nullopt);
  EXPECT_EQ(Speaks("flood"), 1) << "two of one peer";
  EXPECT_EQ(Speaks("a"), std::nullopt);  // 4
  EXPECT_EQ(Speaks("b"), 2) << "three in all: the peer with the most loses one";
  EXPECT_EQ(connections_.spoken(), 3u);
}

TEST_F(ConnectionsTest, OneThatHasPassedItsTrialIsNeverClosed) {
  EXPECT_EQ(Speaks("a"), std::nullopt);  // 1
  EXPECT_EQ(Speaks("a"), std::nullopt);
  now_ += kTrial - absl::Nanoseconds(1);
  EXPECT_EQ(Speaks("a"), 1) << "not over yet";  // 3
  now_ += kTrial;
  EXPECT_EQ(Speaks("a"), 4) << "the new one";
  EXPECT_EQ(Speaks("b"), std::nullopt);  // 5
  EXPECT_EQ(Speaks("c"), 5) << "on trial, as the new one is";
  connections_.Ended(2);
  EXPECT_EQ(Speaks("a"), std::nullopt);
  EXPECT_EQ(connections_.silent(), 0u);
}

TEST_F(ConnectionsTest, OverAUnixSocketTheyHaveRoomOfTheirOwn) {
  for (const char* peer : {"1", "2", "3", "4", "5"}) Speaks(peer);
  now_ += kTrial;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Speaks("uid 0", Transport::kLocal), std::nullopt);
  EXPECT_EQ(Speaks("uid 0", Transport::kLocal), 6);
  now_ += kTrial;
  EXPECT_EQ(Speaks("uid 0", Transport::kLocal), 11) << "the new one";
  EXPECT_EQ(Speaks("6"), 12) << "all of TCP have passed their trial";
  EXPECT_EQ(connections_.spoken(), 7u);
}

TEST(ConnectionLimits, FitIntoTheOpenFilesAndLeaveThreeQuartersToOtherPeers) {
  for (const size_t files : {64u, 256u, 1024u, 4096u, 20000u, 1u << 20}) {
    const ConnectionLimits limits = ConnectionLimits::For(files);
    EXPECT_LE(2 * (limits.silent + limits.local + limits.total), files - files / 4) << files;
    EXPECT_LE(limits.per_peer, limits.total / 4) << files;
    EXPECT_GT(limits.per_peer, 0u) << files;
  }
}

TEST(ConnectionLimits, WithManyOpenFilesTheyFitTheLargestNodeAndManyNodes) {
  const ConnectionLimits limits = ConnectionLimits::For(1 << 17);
  EXPECT_GT(limits.local, 4096u);
  EXPECT_GT(limits.total, 10000u);
  EXPECT_EQ(limits.total, ConnectionLimits().total);
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
        const Transport transport = random() % 4 == 0 ? Transport::kLocal : Transport::kTcp;
        const auto closed = connections.Arrived(
            next, transport, std::string(1, static_cast<char>('a' + random() % 3)), now);
        if (closed.has_value()) ASSERT_EQ(silent.erase(*closed), 1u);
        break;
      }
      case 2: {
        if (silent.empty()) break;
        const auto id = pick(silent);
        silent.erase(id);
        spoken.insert(id);
        const auto closed = connections.Spoke(id, now);
        if (closed.has_value()) ASSERT_EQ(spoken.erase(*closed), 1u);
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
    ASSERT_LE(spoken.size(), Small().local + Small().total);
  }
}

}  // namespace
}  // namespace muster
