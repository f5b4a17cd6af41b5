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

TEST(Crowd, ThePeerWithTheMostIsFoundAsOnesComeAndGo) {
  Crowd crowd;
  EXPECT_EQ(crowd.OldestOfTheMost(), std::nullopt);
  crowd.Add("a", 1);
  crowd.Add("b", 2);
  crowd.Add("b", 3);
  EXPECT_EQ(crowd.OldestOfTheMost(), 2);
  EXPECT_EQ(crowd.OldestOf("a"), 1);
  crowd.Remove("b", 2);
  crowd.Remove("b", 3);
  EXPECT_EQ(crowd.OldestOfTheMost(), 1);
  EXPECT_EQ(crowd.OldestOf("b"), std::nullopt);
  crowd.Remove("b", 3);
  crowd.Remove("a", 1);
  EXPECT_EQ(crowd.OldestOfTheMost(), std::nullopt);
}

TEST(Crowd, OfPeersThatHaveAsManyTheOldestIsFound) {
  Crowd crowd;
  crowd.Add("b", 1);
  crowd.Add("a", 2);
  crowd.Add("c", 3);
  EXPECT_EQ(crowd.OldestOfTheMost(), 1);
  crowd.Remove("b", 1);
  EXPECT_EQ(crowd.OldestOfTheMost(), 2);
}

TEST(Crowd, AnyOrderOfChangesFindsAPeerWithTheMost) {
  std::mt19937 random(7);
  Crowd crowd;
  std::map<std::string, std::set<int64_t>> expected;
  for (int i = 0; i < 5000; ++i) {
    const auto id = static_cast<int64_t>(random() % 40);
    const std::string peer(1, static_cast<char>('a' + id % 5));
    if (random() % 2 == 0) {
      crowd.Add(peer, id);
      expected[peer].insert(id);
    } else {
      crowd.Remove(peer, id);
      expected[peer].erase(id);
    }
    size_t most = 0;
    for (const auto& [name, ids] : expected) most = std::max(most, ids.size());
    std::optional<int64_t> oldest;
    for (const auto& [name, ids] : expected) {
      if (most == 0 || ids.size() < most) continue;
      oldest = std::min(oldest.value_or(*ids.begin()), *ids.begin());
    }
    ASSERT_EQ(crowd.OldestOfTheMost(), oldest);
  }
}

}  // namespace
}  // namespace muster
