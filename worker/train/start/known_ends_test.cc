#include "worker/train/start/known_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "worker/train/ranks/failure.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

// Returns the same number as FirstSingleSample, found step by step with the sampler.
std::optional<int64_t> BySampler(const Division& division, data::Position position,
                                 int64_t most_steps) {
  const auto options = [&](int64_t rank) {
    data::SamplerOptions sampler{.size = division.size,
                                 .world_size = division.world_size,
                                 .per_rank = division.batch.per_rank,
                                 .accumulate = division.batch.accumulate,
                                 .order = data::Order::kSequential,
                                 .last = division.batch.last};
    if (!division.own_sizes.empty()) {
      const auto& sizes = division.own_sizes;
      sampler.size = sizes[rank];
      sampler.own = {.rank = rank,
                     .shortest = *std::min_element(sizes.begin(), sizes.end()),
                     .longest = *std::max_element(sizes.begin(), sizes.end())};
    }
    return sampler;
  };
  std::vector<data::Sampler> samplers;
  for (int64_t rank = 0; rank < division.world_size; ++rank) {
    auto sampler = data::Sampler::Create(options(rank));
    if (!sampler.ok()) return std::nullopt;
    samplers.push_back(*std::move(sampler));
  }
  for (int64_t step = 1; step <= most_steps; ++step) {
    bool single = false;
    bool fewer = false;
    for (int64_t rank = 0; rank < division.world_size; ++rank) {
      const auto share = samplers[rank].ShareOf(position, rank);
      fewer = fewer || share.micro_batches < division.batch.accumulate;
      for (int64_t m = 0; m < share.micro_batches; ++m) {
        single = single || samplers[rank].Samples(position, rank, m).size() == 1;
      }
    }
    if (division.batch.uneven_inputs.stop_at_first && fewer) {
      // All ranks that run out of input in the same step do not end training.
      int64_t most = 0;
      int64_t least = division.batch.accumulate;
      for (int64_t rank = 0; rank < division.world_size; ++rank) {
        most = std::max(most, samplers[rank].ShareOf(position, rank).micro_batches);
        least = std::min(least, samplers[rank].ShareOf(position, rank).micro_batches);
      }
      if (most != least) return std::nullopt;
    }
    if (single) return step;
    position = samplers[0].After(position);
  }
  return std::nullopt;
}

TEST(FirstSingleSample, IsWhereTheSamplerGivesOne) {
  for (int64_t size = 1; size <= 40; ++size) {
    for (int64_t world_size = 1; world_size <= 3; ++world_size) {
      for (int64_t per_rank = 1; per_rank <= 4; ++per_rank) {
        for (int64_t cursor : {int64_t{0}, size / 2, size}) {
          const Division division{.size = size,
                                  .own_sizes = {},
                                  .world_size = world_size,
                                  .batch = {.per_rank = per_rank,
                                            .accumulate = 1 + size % 2,
                                            .last = data::Last::kUneven}};
          EXPECT_EQ(FirstSingleSample(division, {0, cursor}),
                    BySampler(division, {0, cursor}, 200))
              << size << " samples, " << world_size << " x " << per_rank << ", from " << cursor;
        }
      }
    }
  }
}

TEST(FirstSingleSample, OfFilesOfEachRank) {
  for (int64_t one = 1; one <= 12; ++one) {
    for (int64_t other = 1; other <= 12; ++other) {
      const Division division{
          .own_sizes = {one, other},
          .world_size = 2,
          .batch = {.per_rank = 3, .accumulate = 2, .last = data::Last::kUneven}};
      EXPECT_EQ(FirstSingleSample(division, {0, 0}), BySampler(division, {0, 0}, 50))
          << one << " and " << other;
    }
  }
}

TEST(FirstSingleSample, NeverComesWhereTheEndIsDroppedOrPadded) {
  for (const data::Last last : {data::Last::kDrop, data::Last::kPad}) {
    const Division division{.size = 33, .batch = {.per_rank = 4, .last = last}};
    EXPECT_EQ(FirstSingleSample(division, {0, 0}), std::nullopt);
  }
}

TEST(FirstSingleSample, IsNotDoneIfTrainingStopsThere) {
  Division division{.size = 5,
                    .own_sizes = {},
                    .world_size = 2,
                    .batch = {.per_rank = 2,
                              .last = data::Last::kUneven,
                              .uneven_inputs = {.stop_at_first = true}}};
  EXPECT_EQ(FirstSingleSample(division, {0, 0}), std::nullopt);  // the second rank has no sample
  division.size = 7;
  EXPECT_EQ(FirstSingleSample(division, {0, 0}), 2);  // the second rank has one sample
}

v1::ModelSpec Convnet(uint32_t pixels, int stages) {
  v1::ModelSpec model;
  for (const uint32_t size : {3u, pixels, pixels}) model.mutable_convnet()->add_inputs(size);
  for (int i = 0; i < stages; ++i) model.mutable_convnet()->add_widths(4);
  return model;
}

TEST(NeedsTwoSamples, WhereAnImageIsDownToOnePixel) {
  EXPECT_TRUE(NeedsTwoSamples(Convnet(4, 3)));
  EXPECT_TRUE(NeedsTwoSamples(Convnet(1, 1)));
  EXPECT_FALSE(NeedsTwoSamples(Convnet(4, 2)));
  EXPECT_FALSE(NeedsTwoSamples(v1::ModelSpec()));
  const absl::Status refused =
      SingleSampleError("BatchNorm", {.size = 33, .batch = {.per_rank = 4}}, 9);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("found 33 samples, world_size 1, per_rank 4"));
}

TEST(CheckStepsAreLeft, NamesTheStepsOfBoth) {
  const std::vector<PlannedStage> stages = {
      {.index = 0, .begin = 0, .what = FitUntil{.end = 10}},
      {.index = 1, .begin = 10, .what = ValidateStage{}}};
  EXPECT_TRUE(CheckStepsAreLeft(stages, 9, "/c").ok());
  for (const int64_t step : {10, 11}) {
    const absl::Status refused = CheckStepsAreLeft(stages, step, "/c");
    EXPECT_EQ(CauseOf(refused), Cause::kStartDoesNotFit);
    EXPECT_THAT(refused.message(), HasSubstr("found /c, which is of step"));
  }
}

TEST(CheckBest, NeedsAPassThatComes) {
  const auto planned = [](int64_t begin, int64_t end, int64_t every, bool keep) {
    PassRules rules;
    if (keep) rules.keep_best = Criterion{};
    return PlannedStage{.index = 0,
                        .begin = begin,
                        .what = FitUntil{.end = end,
                                         .validate = {begin + every, begin + 2 * every, every},
                                         .begin = begin,
                                         .stage = 0,
                                         .passes = rules}};
  };
  EXPECT_TRUE(ValidationCanStillMakeBest({planned(0, 10, 10, true)}, 0, false));
  EXPECT_FALSE(ValidationCanStillMakeBest({planned(0, 10, 11, true)}, 0, false));
  EXPECT_FALSE(ValidationCanStillMakeBest({planned(0, 10, 5, false)}, 0, false));
  EXPECT_FALSE(ValidationCanStillMakeBest({planned(0, 10, 0, true)}, 0, false));
  EXPECT_TRUE(ValidationCanStillMakeBest({planned(0, 10, 4, true)}, 7, false));
  EXPECT_FALSE(ValidationCanStillMakeBest({planned(0, 10, 4, true)}, 8, false));
  EXPECT_TRUE(
      ValidationCanStillMakeBest({planned(0, 10, 4, true), planned(10, 14, 4, true)}, 8, false));
  EXPECT_TRUE(ValidationCanStillMakeBest({planned(0, 10, 4, true)}, 8, true)) << "one is due now";
  EXPECT_FALSE(ValidationCanStillMakeBest({planned(0, 10, 4, false)}, 8, true));
  ExportConfig best{.path = "/x", .job_name = "", .from = ExportConfig::From::kBest};
  EXPECT_TRUE(CheckBest(std::nullopt, {}, 0, false).ok());
  EXPECT_TRUE(CheckBest(best, {planned(0, 10, 4, true)}, 7, false).ok());
  EXPECT_EQ(CheckBest(best, {planned(0, 10, 4, true)}, 8, false).code(),
            absl::StatusCode::kInvalidArgument);
  best.from = ExportConfig::From::kLast;
  EXPECT_TRUE(CheckBest(best, {planned(0, 10, 4, true)}, 8, false).ok());
}

}  // namespace
}  // namespace muster::train
