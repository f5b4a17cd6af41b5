#include "common/rpc/connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

namespace muster {
namespace {

TEST(ConnectionsByPeer, ThePeerWithTheMostIsFoundAsOnesComeAndGo) {
  ConnectionsByPeer connections;
  EXPECT_EQ(connections.OldestOfTheMost(), std::nullopt);
  connections.Add("a", 1);
  connections.Add("b", 2);
  connections.Add("b", 3);
  EXPECT_EQ(connections.OldestOfTheMost(), 2);
  EXPECT_EQ(connections.OldestOf("a"), 1);
  connections.Remove("b", 2);
  connections.Remove("b", 3);
  EXPECT_EQ(connections.OldestOfTheMost(), 1);
  EXPECT_EQ(connections.OldestOf("b"), std::nullopt);
  connections.Remove("b", 3);
  connections.Remove("a", 1);
  EXPECT_EQ(connections.OldestOfTheMost(), std::nullopt);
}

TEST(ConnectionsByPeer, OfPeersThatHaveAsManyTheOldestIsFound) {
  ConnectionsByPeer connections;
  connections.Add("b", 1);
  connections.Add("a", 2);
  connections.Add("c", 3);
  EXPECT_EQ(connections.OldestOfTheMost(), 1);
  connections.Remove("b", 1);
  EXPECT_EQ(connections.OldestOfTheMost(), 2);
}

TEST(ConnectionsByPeer, AnyOrderOfChangesFindsAPeerWithTheMost) {
  std::mt19937 random(7);
  ConnectionsByPeer connections;
  std::map<std::string, std::set<int64_t>> expected;
  for (int i = 0; i < 5000; ++i) {
    const auto id = static_cast<int64_t>(random() % 40);
    const std::string peer(1, static_cast<char>('a' + id % 5));
    if (random() % 2 == 0) {
      connections.Add(peer, id);
      expected[peer].insert(id);
    } else {
      connections.Remove(peer, id);
      expected[peer].erase(id);
    }
    size_t most = 0;
    for (const auto& [name, ids] : expected) most = std::max(most, ids.size());
    std::optional<int64_t> oldest;
    for (const auto& [name, ids] : expected) {
      if (most == 0 || ids.size() < most) continue;
      oldest = std::min(oldest.value_or(*ids.begin()), *ids.begin());
    }
    ASSERT_EQ(connections.OldestOfTheMost(), oldest);
  }
}

}  // namespace
}  // namespace muster
