#include "worker/comm/rank_sum.h"

#include <cstring>
#include <random>

#include "gtest/gtest.h"

namespace muster::comm {
namespace {

std::vector<std::vector<float>> RandomSources(int ranks, int64_t elements) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<std::vector<float>> sources(ranks, std::vector<float>(elements));
  for (auto& source : sources) {
    for (float& value : source) value = std::exp2(exponent(random)) * (random() % 2 ? 1 : -1);
  }
  return sources;
}

TEST(RankOrderedSum, EqualsSerialSumBitwiseWhicheverSourceIsTheDestination) {
  for (int ranks : {1, 2, 3, 5}) {
    for (int64_t elements : {0, 1, 17, 1024, 2500}) {
      for (int own = 0; own < ranks; ++own) {
        for (double divide_by : {1.0, 3.0}) {
          auto sources = RandomSources(ranks, elements);
          std::vector<float> expected(elements);
          for (int64_t i = 0; i < elements; ++i) {
            volatile float sum = sources[0][i];
            for (int rank = 1; rank < ranks; ++rank) sum = sum + sources[rank][i];
            expected[i] = sum / static_cast<float>(divide_by);
          }
          std::vector<const float*> pointers;
          for (auto& source : sources) pointers.push_back(source.data());
          RankOrderedSum(pointers, sources[own].data(), elements, divide_by);
          EXPECT_EQ(0, std::memcmp(sources[own].data(), expected.data(), elements * sizeof(float)))
              << ranks << " ranks, " << elements << " elements, own " << own;
        }
      }
    }
  }
}

TEST(RankOrderedSum, OrderMatters) {
  // 2^24 + 1 rounds back to 2^24: the order of additions shows in the result.
  std::vector<float> big{16777216.0f}, one{1.0f}, minus{-16777216.0f}, out{0};
  RankOrderedSum<float>({big.data(), one.data(), minus.data()}, out.data(), 1, 1.0);
  EXPECT_EQ(out[0], 0.0f);
  RankOrderedSum<float>({big.data(), minus.data(), one.data()}, out.data(), 1, 1.0);
  EXPECT_EQ(out[0], 1.0f);
}

TEST(RankOrderedSum, AddsIntegersExactly) {
  std::vector<int64_t> a{(int64_t{1} << 60) + 1}, b{2};
  RankOrderedSum<int64_t>({a.data(), b.data()}, a.data(), 1, 1.0);
  EXPECT_EQ(a[0], (int64_t{1} << 60) + 3);
}

}  // namespace
}  // namespace muster::comm
