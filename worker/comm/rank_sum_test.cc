#include "worker/comm/rank_sum.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

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

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
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
          EXPECT_EQ(Bits(sources[own]), Bits(expected))
              << ranks << " ranks, " << elements << " elements, own " << own;
        }
      }
    }
  }
}

TEST(RankOrderedSum, OrderMatters) {
  // 2^24 + 1 rounds to 2^24, so the result shows the order of the additions.
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

TEST(RankOrderedSum, Bfloat16IsConvertedExactlyAndSummedInFloat32) {
  // 1, 2^-8 (1 + 2^-8 is no bfloat16), -0, the smallest subnormal, infinity, and a NaN with
  // payload.
  const std::vector<uint16_t> values{0x3f80, 0x3b80, 0x8000, 0x0001, 0x7f80, 0x7fc1};
  std::vector<float> out(values.size());
  RankOrderedSumOfBfloat16({values.data()}, out.data(), out.size(), 1.0);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), uint32_t{values[i]} << 16) << i;
  }
  float sum = 0;
  RankOrderedSumOfBfloat16({&values[0], &values[1]}, &sum, 1, 1.0);
  EXPECT_EQ(sum, 1.00390625f);
  RankOrderedSumOfBfloat16({&values[0], &values[1], &values[1]}, &sum, 1, 3.0);
  EXPECT_EQ(sum, 1.0078125f / 3.0f);
}

TEST(RankOrderedSum, Bfloat16InOrderOverManyChunks) {
  for (int ranks : {1, 2, 3, 5}) {
    for (int64_t elements : {0, 1, 1024, 2500}) {
      std::vector<std::vector<uint16_t>> bits(ranks);
      std::vector<float> expected(elements), out(elements);
      const auto sources = RandomSources(ranks, elements);
      for (int rank = 0; rank < ranks; ++rank) {
        for (int64_t i = 0; i < elements; ++i) {
          bits[rank].push_back(std::bit_cast<uint32_t>(sources[rank][i]) >> 16);
          const float value = std::bit_cast<float>(uint32_t{bits[rank][i]} << 16);
          expected[i] = rank == 0 ? value : expected[i] + value;
        }
      }
      std::vector<const uint16_t*> pointers;
      for (const auto& source : bits) pointers.push_back(source.data());
      RankOrderedSumOfBfloat16(pointers, out.data(), elements, 1.0);
      EXPECT_EQ(out, expected) << ranks << " ranks, " << elements << " elements";
    }
  }
}

}  // namespace
}  // namespace muster::comm
