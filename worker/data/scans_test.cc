// The vectorised scans of whole files find the first wrong element at any place: at the ends of
// vectors and of blocks, and in the remainder.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/activity/activity.h"
#include "worker/data/scans.h"

namespace muster::data {
namespace {

std::vector<size_t> Places(size_t block, size_t count) {
  return {0, 1, 7, 8, 15, 16, 63, 64, block - 1, block, block + 1, count - 2, count - 1};
}

template <typename Token>
void FindsTokens() {
  constexpr size_t kBlock = 1 << 16;
  constexpr size_t kCount = 2 * kBlock + 37;
  std::vector<Token> tokens(kCount, 99);
  EXPECT_FALSE(FirstBeyond(tokens.data(), kCount, 100).has_value());
  EXPECT_FALSE(FirstBeyond(tokens.data(), 0, 1).has_value());
  for (const size_t place : Places(kBlock, kCount)) {
    tokens[place] = 100;
    EXPECT_EQ(FirstBeyond(tokens.data(), kCount, 100), place);
    EXPECT_FALSE(FirstBeyond(tokens.data(), place, 100).has_value());
    tokens[place] = 99;
  }
  tokens[5] = tokens[70000] = std::numeric_limits<Token>::max();
  EXPECT_EQ(FirstBeyond(tokens.data(), kCount, 100), 5u) << "the first of several";
}

TEST(FirstBeyond, FindsATokenOf16Bits) { FindsTokens<uint16_t>(); }
TEST(FirstBeyond, FindsATokenOf32Bits) { FindsTokens<uint32_t>(); }

TEST(FirstBeyond, TakesEveryTokenOfItsTypeWhereTheVocabularyIsLargeEnough) {
  const std::vector<uint32_t> tokens(100, std::numeric_limits<uint32_t>::max());
  EXPECT_FALSE(FirstBeyond(tokens.data(), 100, int64_t{1} << 32).has_value());
  EXPECT_EQ(FirstBeyond(tokens.data(), 100, (int64_t{1} << 32) - 1), 0u);
}

TEST(FirstNotFinite, FindsNaNAndInfinitiesAndNothingElse) {
  constexpr size_t kBlock = 1 << 20;
  constexpr size_t kCount = kBlock + 37;
  using Limits = std::numeric_limits<float>;
  std::vector<float> numbers(kCount, 1.5f);
  numbers[3] = Limits::max();
  numbers[4] = Limits::lowest();
  numbers[5] = Limits::denorm_min();
  numbers[6] = -0.0f;
  EXPECT_FALSE(FirstNotFinite(numbers.data(), kCount).has_value());
  EXPECT_FALSE(FirstNotFinite(numbers.data(), 0).has_value());
  for (const float bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    for (const size_t place : Places(kBlock, kCount)) {
      const float before = std::exchange(numbers[place], bad);
      EXPECT_EQ(FirstNotFinite(numbers.data(), kCount), place);
      EXPECT_FALSE(FirstNotFinite(numbers.data(), place).has_value());
      numbers[place] = before;
    }
  }
}

// A scan of a large file makes progress, so the rank does not count as hung.
TEST(Scans, MoveWithEachBlock) {
  activity::Activity activity;
  const activity::Scope scope(&activity);
  const std::vector<uint16_t> tokens(3 << 16);
  FirstBeyond(tokens.data(), tokens.size(), 100);
  EXPECT_EQ(activity.count(), 3u);
  const std::vector<float> numbers(2 << 20);
  FirstNotFinite(numbers.data(), numbers.size());
  EXPECT_EQ(activity.count(), 5u);
}

}  // namespace
}  // namespace muster::data
