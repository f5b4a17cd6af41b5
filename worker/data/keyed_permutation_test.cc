#include "worker/data/keyed_permutation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Order(uint64_t seed, int64_t epoch, int64_t n,
                           std::optional<int64_t> rank = std::nullopt) {
  const KeyedPermutation permutation(seed, epoch, n, rank);
  std::vector<int64_t> order;
  for (int64_t place = 0; place < n; ++place) order.push_back(permutation.At(place));
  return order;
}

// The expected numbers come from the Python program in docs/reference/sampler.md.
TEST(KeyedPermutationTest, IsTheOneOfTheSpecification) {
  EXPECT_THAT(Order(1, 0, 10), ElementsAre(2, 4, 6, 7, 9, 0, 8, 1, 3, 5));
  EXPECT_THAT(Order(1, 1, 10), ElementsAre(9, 7, 2, 1, 8, 3, 4, 5, 0, 6));
  EXPECT_THAT(Order(2, 0, 10), ElementsAre(6, 1, 7, 4, 3, 9, 5, 0, 2, 8));
  EXPECT_THAT(Order(UINT64_MAX, 123456789, 7), ElementsAre(0, 5, 6, 3, 2, 1, 4));
  EXPECT_THAT(Order(0, 0, 5), ElementsAre(0, 4, 3, 1, 2));
  EXPECT_THAT(Order(1, 0, 10, 0), ElementsAre(6, 5, 4, 3, 7, 0, 8, 9, 2, 1));
  EXPECT_THAT(Order(1, 0, 10, 1), ElementsAre(7, 1, 4, 9, 0, 6, 8, 2, 3, 5));
  uint64_t sum = 0;
  for (int64_t x : Order(42, 3, 100000)) sum = sum * 31 + static_cast<uint64_t>(x);
  EXPECT_EQ(sum, 11352462832926404066u);
  const int64_t billion_squared = 1000000000000000000;
  EXPECT_EQ(KeyedPermutation(7, 2, billion_squared).At(0), 270494372708037039);
  EXPECT_EQ(KeyedPermutation(7, 2, billion_squared).At(billion_squared - 1), 208026103108124580);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(KeyedPermutation(7, 2, most).At(1), 5842658132194766545);
  EXPECT_EQ(KeyedPermutation(7, 2, most).At(most - 1), 3853043356072648064);
}

TEST(KeyedPermutationTest, HoldsEveryNumberOnceForEverySize) {
  for (int64_t n = 0; n <= 2000; ++n) {
    std::vector<int64_t> order = Order(5, n, n);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i) << "of " << n;
  }
}

// The size is too large for a look at every place. The test checks that no number comes twice, and
// that none is outside.
TEST(KeyedPermutationTest, HoldsNoNumberTwiceForHugeSizes) {
  constexpr int64_t kPlaces = 200000;
  for (const int64_t n :
       {int64_t{1000000007}, (int64_t{1} << 40) + 1, std::numeric_limits<int64_t>::max()}) {
    const KeyedPermutation permutation(9, 4, n);
    std::vector<int64_t> seen;
    for (const int64_t first : {int64_t{0}, n / 2, n - kPlaces}) {
      for (int64_t i = 0; i < kPlaces; ++i) seen.push_back(permutation.At(first + i));
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_GE(seen.front(), 0);
    EXPECT_LT(seen.back(), n);
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()) << "of " << n;
  }
}

// Pearson's statistic of these counts against equal counts, as a normal deviate (Wilson and
// Hilferty). All inputs are fixed, so a result never changes. Random orders exceed 4 once in 30000
// tests.
double Deviation(const std::vector<int64_t>& counts) {
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  const double mean = total / static_cast<double>(counts.size());
  double statistic = 0;
  for (const int64_t count : counts) statistic += (count - mean) * (count - mean) / mean;
  const double freedom = static_cast<double>(counts.size()) - 1;
  const double variance = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - variance)) / std::sqrt(variance);
}
constexpr double kMost = 4;

TEST(KeyedPermutationTest, EveryPermutationOfFewNumbersIsEquallyLikely) {
  int64_t permutations = 1;
  for (int64_t n = 2; n <= 6; ++n) {
    permutations *= n;
    std::map<std::vector<int64_t>, int64_t> by_epoch, by_seed;
    for (int64_t i = 0; i < 300 * permutations; ++i) {
      ++by_epoch[Order(1, i, n)];
      ++by_seed[Order(i, 0, n)];
    }
    for (const auto& found : {by_epoch, by_seed}) {
      std::vector<int64_t> counts;
      for (const auto& [order, count] : found) counts.push_back(count);
      EXPECT_EQ(static_cast<int64_t>(counts.size()), permutations);
      EXPECT_LT(Deviation(counts), kMost) << "of " << n;
    }
  }
}

// Every shift is an even permutation if the numbers of rows and of columns are odd.
TEST(KeyedPermutationTest, OddPermutationsAreAsLikelyAsEvenOnes) {
  for (const int64_t n : {7, 8, 9, 15, 16, 25}) {
    std::vector<int64_t> counts(2);
    for (int64_t epoch = 0; epoch < 2000; ++epoch) {
      const std::vector<int64_t> order = Order(1, epoch, n);
      int64_t inversions = 0;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = i + 1; j < n; ++j) inversions += order[i] > order[j];
      }
      ++counts[inversions % 2];
    }
    EXPECT_LT(Deviation(counts), kMost) << "of " << n;
  }
}

constexpr int64_t kParts = 20;

// Counts of pairs of numbers below n, by the part of [0, n) of each number.
class Pairs {
 public:
  explicit Pairs(int64_t n) : n_(n), counts_(kParts * kParts) {}
  void Add(int64_t a, int64_t b) { ++counts_[PartOf(a) * kParts + PartOf(b)]; }
  double deviation() const { return Deviation(counts_); }

 private:
  int64_t PartOf(int64_t x) const { return static_cast<int64_t>(double(x) / double(n_) * kParts); }

  int64_t n_;
  std::vector<int64_t> counts_;
};

class KeyedPermutationOfMany : public ::testing::TestWithParam<int64_t> {};

TEST_P(KeyedPermutationOfMany, APlaceHasEveryNumberEquallyOftenAndItsNeighboursTellNothing) {
  const int64_t n = GetParam();
  for (const int64_t place : {int64_t{0}, n / 2, n - 2}) {
    Pairs neighbours(n), epochs(n), seeds(n), ranks(n);
    for (int64_t epoch = 0; epoch < 40000; ++epoch) {
      const KeyedPermutation permutation(3, epoch, n);
      const int64_t here = permutation.At(place);
      neighbours.Add(here, permutation.At(place + 1));
      epochs.Add(here, KeyedPermutation(3, epoch + 1, n).At(place));
      seeds.Add(here, KeyedPermutation(4, epoch, n).At(place));
      ranks.Add(KeyedPermutation(3, epoch, n, 0).At(place),
                KeyedPermutation(3, epoch, n, 1).At(place));
    }
    EXPECT_LT(neighbours.deviation(), kMost) << place;
    EXPECT_LT(epochs.deviation(), kMost) << place;
    EXPECT_LT(seeds.deviation(), kMost) << place;
    EXPECT_LT(ranks.deviation(), kMost) << place;
  }
}

TEST_P(KeyedPermutationOfMany, WithinAnEpochDistancesBetweenPlacesTellNothing) {
  const int64_t n = GetParam();
  const KeyedPermutation permutation(9, 0, n);
  const auto row = static_cast<int64_t>(std::ceil(std::sqrt(n)));
  for (const int64_t distance : {int64_t{1}, int64_t{2}, row - 1, row, row + 1, row + 2}) {
    Pairs pairs(n);
    for (int64_t place = 0; place < 40000; ++place) {
      pairs.Add(permutation.At(place), permutation.At(place + distance));
    }
    EXPECT_LT(pairs.deviation(), kMost) << distance;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KeyedPermutationOfMany,
                         testing::Values(100003, 100000000, int64_t{1} << 50));

}  // namespace
}  // namespace muster::data
