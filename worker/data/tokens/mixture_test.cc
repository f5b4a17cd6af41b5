#include "worker/data/tokens/mixture.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Place = MixtureOrder::Place;

std::vector<Place> All(const MixtureOrder& order) {
  std::vector<Place> places;
  for (int64_t sample = 0; sample < order.size(); ++sample) places.push_back(order.At(sample));
  return places;
}

TEST(MixtureOrderTest, PartsOfEqualWeightsTakeTurnsAndTheSmallerOneRepeats) {
  const MixtureOrder order({{2, 1.0}, {4, 1.0}});
  EXPECT_THAT(All(order), ElementsAre(Place{0, 0}, Place{1, 0}, Place{0, 1}, Place{1, 1},
                                      Place{0, 0}, Place{1, 2}, Place{0, 1}, Place{1, 3}));
  EXPECT_EQ(order.Used(0), 4);
  EXPECT_EQ(order.Used(1), 4);
}

TEST(MixtureOrderTest, OnePartIsInItsOrder) {
  EXPECT_THAT(All(MixtureOrder({{3, 0.1}})), ElementsAre(Place{0, 0}, Place{0, 1}, Place{0, 2}));
}

// The order by its definition.
std::vector<Place> Sorted(const std::vector<MixtureOrder::Part>& parts) {
  std::tuple<double, size_t> last = {0, 0};
  const auto time = [&](size_t part, int64_t j) {
    return (static_cast<double>(j) + 0.5) / parts[part].weight;
  };
  for (size_t part = 0; part < parts.size(); ++part) {
    last = std::max(last, {time(part, parts[part].samples - 1), part});
  }
  std::vector<std::tuple<double, size_t, int64_t>> all;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (int64_t j = 0; std::tuple(time(part, j), part) <= last; ++j) {
      all.emplace_back(time(part, j), part, j % parts[part].samples);
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<Place> places;
  for (const auto& [when, part, sample] : all) places.push_back({part, sample});
  return places;
}

TEST(MixtureOrderTest, RandomMixturesHaveTheOrderOfTheirDefinition) {
  std::mt19937 dice(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<MixtureOrder::Part> parts(1 + dice() % 4);
    for (auto& part : parts) {
      part.samples = 1 + dice() % 40;
      part.weight = round % 2 == 0 ? 1.0 + dice() % 3 : std::ldexp(1.0 + dice() % 1000, -10);
    }
    const MixtureOrder order(parts);
    EXPECT_EQ(All(order), Sorted(parts));
  }
}

TEST(MixtureOrderTest, SharesAreThoseOfTheWeights) {
  const MixtureOrder order({{1000, 0.7}, {1000, 0.2}, {1000, 0.1}});
  std::vector<int64_t> counts(3);
  for (int64_t sample = 0; sample < 1000; ++sample) ++counts[order.At(sample).part];
  EXPECT_NEAR(counts[0], 700, 1);
  EXPECT_NEAR(counts[1], 200, 1);
  EXPECT_NEAR(counts[2], 100, 1);
}

// Rows whose inputs are all `token`, with lengths that grow with the sample.
class Rows : public Dataset {
 public:
  Rows(int64_t token, std::string tokenizer) : token_(token), tokenizer_(std::move(tokenizer)) {}

  int64_t size() const override { return 3; }
  absl::Status Check(const Part&) const override { return absl::OkStatus(); }
  tokenizer::Source tokenizer() const override { return {"/t/" + tokenizer_, tokenizer_}; }
  absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const override {
    return Blank(samples[0] + 1);
  }
  Batch Blank(int64_t length) const override {
    const at::Tensor row = at::full({1, length}, token_, at::kLong);
    return {.inputs = row,
            .targets = row.add(1),
            .further = {at::arange(length, at::kLong).unsqueeze(0)}};
  }

 private:
  const int64_t token_;
  const std::string tokenizer_;
};

absl::StatusOr<std::unique_ptr<Dataset>> Mix(const std::string& tokenizer) {
  std::vector<std::unique_ptr<Dataset>> parts;
  parts.push_back(std::make_unique<Rows>(10, "a"));
  parts.push_back(std::make_unique<Rows>(20, tokenizer));
  return MakeMixture(std::move(parts), {1, 1}, {.ignored = -100});
}

std::vector<int64_t> Flat(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

TEST(MixtureTest, RowsOfPartsAreFilledUpToTheLongest) {
  const auto mixture = Mix("a");
  ASSERT_TRUE(mixture.ok()) << mixture.status();
  const std::vector<int64_t> samples = {3, 0};  // the second of the second part, the first
  const auto batch = (*mixture)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Flat(batch->inputs), ElementsAre(20, 20, 10, 0));
  EXPECT_THAT(Flat(batch->targets), ElementsAre(21, 21, 11, -100));
  EXPECT_THAT(Flat(batch->further[0]), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT((*mixture)->notes().back().text,
              HasSubstr("an epoch has 6 samples of the mixture, which use 1.00 times mixture[0], "
                        "1.00 times mixture[1]"));
}

TEST(MixtureTest, AnEpochOfTooManySamplesIsRefused) {
  for (const double weight : {1e-12, 1e-320}) {
    std::vector<std::unique_ptr<Dataset>> parts;
    parts.push_back(std::make_unique<Rows>(10, "a"));
    parts.push_back(std::make_unique<Rows>(20, "a"));
    const auto mixture = MakeMixture(std::move(parts), {weight, 1}, {.ignored = -100});
    EXPECT_THAT(std::string(mixture.status().message()), HasSubstr("an epoch"));
  }
}

TEST(MixtureTest, PartsOfTwoTokenizersAreRefused) {
  EXPECT_THAT(std::string(Mix("b").status().message()), HasSubstr("mixture[1]"));
}

}  // namespace
}  // namespace muster::data
