#include "worker/models/language/next_token.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::models {
namespace {

using ::testing::ElementsAre;

std::optional<int64_t> Next(const std::vector<double>& logits, const Sampling& sampling,
                            int64_t position = 0) {
  return NextToken(logits, sampling, {.prompt = 0, .position = position});
}

// Returns how often each token is drawn at the first `draws` positions.
std::map<int64_t, int> Drawn(const std::vector<double>& logits, const Sampling& sampling,
                             int draws) {
  std::map<int64_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[*Next(logits, sampling, i)];
  return counts;
}

TEST(NextTokenTest, WithoutTemperatureItIsTheFirstOfTheLargest) {
  EXPECT_EQ(Next({-3, 2, 7, 7, 1}, {}), 2);
  EXPECT_EQ(Next({-3}, {}), 0);
}

TEST(NextTokenTest, LogitsThatAreNotFiniteGiveNoToken) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(Next({1, bad, 2}, {}), std::nullopt);
    EXPECT_EQ(Next({1, bad, 2}, {.temperature = 1}), std::nullopt);
  }
}

// The numbers in docs/how-to/generate.md, from its Python code.
TEST(NextTokenTest, RandomNumbersAreThoseOfTheDocumentation) {
  EXPECT_EQ(RandomNumber(1, {0, 0}), 0.4327449275927212);
  EXPECT_EQ(RandomNumber(1, {0, 1}), 0.4256321780286294);
  EXPECT_EQ(RandomNumber(1, {1, 0}), 0.7386401410820047);
}

TEST(NextTokenTest, EveryPlaceAndSeedHasItsOwnNumber) {
  std::set<double> numbers;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t prompt = 0; prompt < 10; ++prompt) {
      for (int64_t position = 0; position < 10; ++position) {
        const double number = RandomNumber(seed, {prompt, position});
        EXPECT_GE(number, 0);
        EXPECT_LT(number, 1);
        numbers.insert(number);
      }
    }
  }
  EXPECT_EQ(numbers.size(), 1000u);
}

TEST(NextTokenTest, TokensAreDrawnAsOftenAsTheirProbabilitiesSay) {
  // exp(logit / 0.5): 1, 4 and 16 of 21.
  const std::vector<double> logits = {0, std::log(2), std::log(4)};
  constexpr int kDraws = 21000;
  auto counts = Drawn(logits, {.temperature = 0.5, .seed = 4}, kDraws);
  // The tolerances are five standard deviations.
  EXPECT_NEAR(counts[0], 1000, 155);
  EXPECT_NEAR(counts[1], 4000, 285);
  EXPECT_NEAR(counts[2], 16000, 310);
}

TEST(NextTokenTest, OnlyTheTopTokensAreDrawnAndOfEqualOnesTheFirst) {
  const std::vector<double> logits = {1, 3, 2, 3, 2, 2};
  const auto tokens = [&](int64_t top_k) {
    std::vector<int64_t> ids;
    for (const auto& [id, count] : Drawn(logits, {.temperature = 5, .top_k = top_k}, 500)) {
      ids.push_back(id);
    }
    return ids;
  };
  EXPECT_THAT(tokens(1), ElementsAre(1));
  EXPECT_THAT(tokens(2), ElementsAre(1, 3));
  EXPECT_THAT(tokens(4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(tokens(6), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(tokens(700), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(NextTokenTest, ExtremeTemperaturesAndLogitsAreNoSpecialCase) {
  const std::vector<double> logits = {-3e38, 3e38, 1};
  EXPECT_THAT(Drawn(logits, {.temperature = 1e-300}, 100), ElementsAre(std::pair(1, 100)));
  EXPECT_EQ(Drawn(logits, {.temperature = 1e300}, 100).size(), 3u);
}

}  // namespace
}  // namespace muster::models
