#include "worker/data/sampler.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/activity/activity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/keyed_permutation.h"
#include "worker/data/permutation.h"

namespace muster::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The expected lists come from the Python program in docs/reference/sampler.md.
TEST(PermutationTest, IsTheOneOfTheSpecification) {
  EXPECT_THAT(Permutation(1, 0, 10), ElementsAre(7, 2, 6, 8, 0, 1, 5, 9, 3, 4));
  EXPECT_THAT(Permutation(1, 1, 10), ElementsAre(6, 2, 3, 5, 1, 9, 0, 8, 4, 7));
  EXPECT_THAT(Permutation(2, 0, 10), ElementsAre(4, 5, 2, 7, 9, 1, 3, 8, 0, 6));
  EXPECT_THAT(Permutation(UINT64_MAX, 123456789, 7), ElementsAre(2, 5, 6, 3, 0, 1, 4));
  EXPECT_THAT(Permutation(0, 0, 5), ElementsAre(3, 2, 0, 4, 1));
  uint64_t sum = 0;
  for (int64_t x : Permutation(42, 3, 100000)) sum = sum * 31 + static_cast<uint64_t>(x);
  EXPECT_EQ(sum, 13751873226941965510u);
}

// Ranks that shuffle many samples do not count as hung.
TEST(PermutationTest, MovesWithEachBlock) {
  activity::Activity activity;
  const activity::Scope scope(&activity);
  Permutation(1, 0, (3 << 20) + 5);
  EXPECT_EQ(activity.count(), 3u);
}

TEST(PermutationTest, OneAndNoSample) {
  EXPECT_THAT(Permutation(1, 0, 1), ElementsAre(0));
  EXPECT_TRUE(Permutation(1, 0, 0).empty());
}

Sampler Make(const SamplerOptions& options) {
  auto sampler = Sampler::Create(options);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

// The global batch of the step after `position`, in order.
std::vector<int64_t> GlobalBatch(Sampler& sampler, const SamplerOptions& options,
                                 Position position) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < options.world_size; ++rank) {
    for (int64_t micro = 0; micro < options.accumulate; ++micro) {
      const auto samples = sampler.Samples(position, rank, micro);
      all.insert(all.end(), samples.begin(), samples.end());
    }
  }
  return all;
}

TEST(SamplerTest, RanksTakeContiguousPartsOfTheEpochsOrder) {
  const SamplerOptions options{
      .size = 26, .seed = 9, .world_size = 2, .per_rank = 3, .accumulate = 2};
  Sampler sampler = Make(options);
  const auto order = Permutation(9, 0, 26);
  EXPECT_EQ(sampler.pace().global_batch, 12);
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  const Position second = sampler.After({0, 0});
  EXPECT_EQ(second, (Position{0, 12}));
  // Rank 1 takes micro-batch 1 of the second step from position 12 + 6 + 3 on.
  EXPECT_EQ(sampler.Samples(second, 1, 1),
            (std::vector<int64_t>(order.begin() + 21, order.begin() + 24)));
}

TEST(SamplerTest, TheGlobalBatchDoesNotDependOnTheWorldSize) {
  const SamplerOptions one{.size = 50, .seed = 3, .world_size = 1, .per_rank = 4, .accumulate = 3};
  for (const auto& [world_size, per_rank, accumulate] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {3, 4, 1}, {2, 2, 3}, {4, 3, 1}, {12, 1, 1}}) {
    SamplerOptions other = one;
    other.world_size = world_size;
    other.per_rank = per_rank;
    other.accumulate = accumulate;
    Sampler a = Make(one), b = Make(other);
    Position position;
    for (int step = 0; step < 20; ++step) {
      EXPECT_EQ(GlobalBatch(a, one, position), GlobalBatch(b, other, position));
      EXPECT_EQ(a.After(position), b.After(position));
      position = a.After(position);
    }
  }
}

TEST(SamplerTest, DropLeavesTheRestOfAnEpochOut) {
  const SamplerOptions options{.size = 10, .seed = 1, .world_size = 2, .per_rank = 2};
  Sampler sampler = Make(options);
  EXPECT_EQ(sampler.Begin({0, 8}), (Position{1, 0}));
  EXPECT_EQ(sampler.After({0, 8}), (Position{1, 4}));
  const auto order = Permutation(1, 1, 10);
  EXPECT_EQ(GlobalBatch(sampler, options, {0, 8}),
            (std::vector<int64_t>(order.begin(), order.begin() + 4)));
}

TEST(SamplerTest, PadFillsTheLastStepByStartingOver) {
  const SamplerOptions options{
      .size = 10, .seed = 1, .world_size = 2, .per_rank = 2, .last = Last::kPad};
  Sampler sampler = Make(options);
  const auto order = Permutation(1, 0, 10);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  EXPECT_EQ(sampler.Begin({0, 8}), (Position{0, 8}));
  EXPECT_THAT(GlobalBatch(sampler, options, {0, 8}),
              ElementsAre(order[8], order[9], order[0], order[1]));
  EXPECT_EQ(sampler.After({0, 8}), (Position{0, 10}));
  EXPECT_EQ(sampler.Begin({0, 10}), (Position{1, 0}));
}

TEST(SamplerTest, PadWorksWithFewerSamplesThanOneStepTakes) {
  const SamplerOptions options{
      .size = 2, .world_size = 5, .order = Order::kSequential, .last = Last::kPad};
  Sampler sampler = Make(options);
  EXPECT_THAT(GlobalBatch(sampler, options, {0, 0}), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_EQ(sampler.After({0, 0}), (Position{0, 2}));
}

TEST(SamplerTest, EveryEpochHoldsEverySampleOnce) {
  const SamplerOptions options{
      .size = 24, .seed = 7, .world_size = 3, .per_rank = 2, .accumulate = 2};
  Sampler sampler = Make(options);
  Position position;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> seen;
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      EXPECT_EQ(sampler.Begin(position).epoch, epoch);
      const auto batch = GlobalBatch(sampler, options, position);
      seen.insert(seen.end(), batch.begin(), batch.end());
      position = sampler.After(position);
    }
    std::sort(seen.begin(), seen.end());
    for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(seen[i], i);
  }
}

TEST(SamplerTest, SequentialOrderIsTheDatas) {
  const SamplerOptions options{
      .size = 8, .world_size = 2, .per_rank = 2, .order = Order::kSequential};
  Sampler sampler = Make(options);
  EXPECT_THAT(GlobalBatch(sampler, options, {5, 4}), ElementsAre(4, 5, 6, 7));
}

// Samplers of ranks whose own files have these sizes, in rank order.
std::vector<Sampler> OwnSamplers(const std::vector<int64_t>& sizes, Last last) {
  std::vector<Sampler> samplers;
  const auto [shortest, longest] = std::minmax_element(sizes.begin(), sizes.end());
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    samplers.push_back(Make({.size = sizes[rank],
                             .seed = 5,
                             .world_size = static_cast<int64_t>(sizes.size()),
                             .per_rank = 2,
                             .accumulate = 2,
                             .last = last,
                             .own = OwnFile{static_cast<int64_t>(rank), *shortest, *longest}}));
  }
  return samplers;
}

TEST(SamplerTest, WithOwnFilesEachRankWalksItsOwnOrderAndTheShortestEndsTheEpoch) {
  const std::vector<int64_t> sizes = {13, 9, 30};
  auto samplers = OwnSamplers(sizes, Last::kDrop);
  Position position;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t step = 0; step < 2; ++step) {  // 9 / 4
      for (int64_t rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(samplers[rank].steps_per_epoch(), 2);
        EXPECT_EQ(samplers[rank].Begin(position), (Position{epoch, step * 12}));
        const auto order = Permutation(5, epoch, sizes[rank], rank);
        for (int64_t micro = 0; micro < 2; ++micro) {
          EXPECT_THAT(samplers[rank].Samples(position, rank, micro),
                      ElementsAre(order[4 * step + 2 * micro], order[4 * step + 2 * micro + 1]));
        }
        EXPECT_EQ(samplers[rank].After(position), samplers[0].After(position));
      }
      position = samplers[0].After(position);
    }
  }
}

TEST(SamplerTest, WithOwnFilesOnlyTheShortOnesStartOverWhenPadding) {
  const std::vector<int64_t> sizes = {6, 9};
  auto samplers = OwnSamplers(sizes, Last::kPad);
  EXPECT_EQ(samplers[1].steps_per_epoch(), 2);
  const Position second = samplers[0].After({0, 0});
  EXPECT_EQ(second, (Position{0, 8}));
  const auto first_order = Permutation(5, 0, 6, 0);
  const auto second_order = Permutation(5, 0, 9, 1);
  EXPECT_THAT(samplers[0].Samples(second, 0, 1), ElementsAre(first_order[0], first_order[1]));
  EXPECT_THAT(samplers[1].Samples(second, 1, 1), ElementsAre(second_order[6], second_order[7]));
  EXPECT_EQ(samplers[1].After(second), (Position{0, 12}));
  EXPECT_EQ(samplers[0].Begin({0, 12}), (Position{1, 0}));
}

TEST(SamplerTest, OwnFilesOfOneSizeAreStillOrderedDifferently) {
  EXPECT_NE(Permutation(5, 0, 20, 0), Permutation(5, 0, 20, 1));
  EXPECT_NE(Permutation(5, 0, 20, 0), Permutation(5, 0, 20));
  // The expected order comes from the Python program in docs/reference/sampler.md.
  EXPECT_THAT(Permutation(1, 0, 10, 0), ElementsAre(9, 3, 1, 4, 5, 0, 6, 7, 2, 8));
  EXPECT_THAT(Permutation(1, 0, 10, 1), ElementsAre(3, 9, 2, 6, 1, 4, 5, 0, 8, 7));
}

TEST(SamplerTest, TheShortestOwnFileMustFillAStep) {
  const auto refused = Sampler::Create({.size = 50,
                                        .world_size = 2,
                                        .per_rank = 3,
                                        .accumulate = 2,
                                        .own = OwnFile{.rank = 1, .shortest = 5}});
  EXPECT_THAT(
      std::string(refused.status().message()),
      HasSubstr("the shortest of the ranks' files has 5 samples, less than one step takes of it: 2 "
                "micro-batches x 3 samples"));
}

TEST(SamplerTest, UnevenGivesTheRestToTheFirstRanks) {
  const SamplerOptions options{.size = 19,
                               .seed = 9,
                               .world_size = 3,
                               .per_rank = 2,
                               .accumulate = 2,
                               .last = Last::kUneven};
  Sampler sampler = Make(options);
  const auto order = Permutation(9, 0, 19);
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  const Position second = sampler.After({0, 0});
  EXPECT_EQ(second, (Position{0, 12}));
  // The step has 7 samples for 3 ranks that take 4 each.
  EXPECT_THAT(sampler.Samples(second, 0, 1), ElementsAre(order[14], order[15]));
  EXPECT_THAT(sampler.Samples(second, 1, 0), ElementsAre(order[16], order[17]));
  EXPECT_THAT(sampler.Samples(second, 1, 1), ElementsAre(order[18]));
  EXPECT_THAT(sampler.Samples(second, 2, 0), ElementsAre());
  const auto share = [&](int64_t rank) { return sampler.ShareOf(second, rank); };
  EXPECT_EQ(share(0).micro_batches, 2);
  EXPECT_EQ(share(0).samples, 4);
  EXPECT_EQ(share(1).micro_batches, 2);
  EXPECT_EQ(share(1).samples, 3);
  EXPECT_EQ(share(2).micro_batches, 0);
  EXPECT_EQ(share(2).samples, 0);
  EXPECT_EQ(share(2).idle_steps, 0);
  EXPECT_EQ(sampler.After(second), (Position{0, 19}));
  EXPECT_EQ(sampler.Begin({0, 19}), (Position{1, 0}));
}

TEST(SamplerTest, UnevenTakesDataThatFillNoStep) {
  Sampler sampler =
      Make({.size = 3, .seed = 1, .world_size = 4, .per_rank = 2, .last = Last::kUneven});
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_EQ(sampler.ShareOf({0, 0}, 0).samples, 2);
  EXPECT_EQ(sampler.ShareOf({0, 0}, 1).samples, 1);
  EXPECT_EQ(sampler.ShareOf({0, 0}, 2).samples, 0);
}

TEST(SamplerTest, WithOwnFilesUnevenLetsEachRankGoToTheEndOfItsOwn) {
  const std::vector<int64_t> sizes = {13, 3, 0};
  auto samplers = OwnSamplers(sizes, Last::kUneven);
  const auto order = Permutation(5, 0, 13, 0);
  std::vector<std::vector<int64_t>> shares(3), idle(3);
  Position position;
  for (int64_t step = 0; step < 5; ++step) {  // 4 an epoch
    for (int64_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(samplers[rank].steps_per_epoch(), 4);
      EXPECT_EQ(samplers[rank].After(position), samplers[0].After(position));
      const auto share = samplers[rank].ShareOf(position, rank);
      shares[rank].push_back(10 * share.micro_batches + share.samples);
      idle[rank].push_back(share.micro_batches == 0 ? share.idle_steps : -1);
    }
    position = samplers[0].After(position);
  }
  EXPECT_THAT(shares[0], ElementsAre(24, 24, 24, 11, 24));
  EXPECT_THAT(shares[1], ElementsAre(23, 0, 0, 0, 23));
  EXPECT_THAT(idle[1], ElementsAre(-1, 0, 1, 2, -1));
  EXPECT_THAT(idle[2], ElementsAre(0, 1, 2, 3, 0));
  EXPECT_EQ(position, (Position{1, 12}));
  EXPECT_THAT(samplers[0].Samples({0, 36}, 0, 0), ElementsAre(order[12]));
  EXPECT_THAT(samplers[0].Samples({0, 36}, 0, 1), ElementsAre());
}

// Calls a function for the steps of three epochs, with all ranks' own files or a common data set.
void ForEachMicroBatch(
    const SamplerOptions& options,
    const std::function<void(const Position&, int64_t rank, int64_t micro_batch)>& visit) {
  Sampler sampler = Make(options);
  Position position;
  while (sampler.Begin(position).epoch < 3) {
    for (int64_t rank = 0; rank < options.world_size; ++rank) {
      if (options.own.has_value() && options.own->rank != rank) continue;
      for (int64_t micro = 0; micro < options.accumulate; ++micro) visit(position, rank, micro);
    }
    position = sampler.After(position);
  }
}

// The options of many jobs, without the order.
std::vector<SamplerOptions> ManyOptions() {
  std::vector<SamplerOptions> many;
  for (const Last last : {Last::kDrop, Last::kPad, Last::kUneven}) {
    for (const int64_t size : {1, 2, 3, 12, 24, 25, 47}) {
      for (const int64_t world_size : {1, 2, 3}) {
        SamplerOptions options{.size = size,
                               .seed = 5,
                               .world_size = world_size,
                               .per_rank = 2,
                               .accumulate = 2,
                               .last = last};
        if (last != Last::kDrop || size >= 4 * world_size) many.push_back(options);
        for (int64_t rank = 0; rank < world_size; ++rank) {
          options.own =
              OwnFile{.rank = rank, .shortest = std::min<int64_t>(size, 9), .longest = 50};
          if (last != Last::kDrop || options.own->shortest >= 4) many.push_back(options);
        }
      }
    }
  }
  return many;
}

// The samples of a sequential sampler are the places.
TEST(SamplerTest, TheOrdersDifferInNothingButWhichSampleIsAtAPlace) {
  for (const SamplerOptions& options : ManyOptions()) {
    SamplerOptions with = options;
    with.order = Order::kSequential;
    Sampler places = Make(with);
    with.order = Order::kShuffled;
    Sampler shuffled = Make(with);
    with.order = Order::kShuffledV2;
    Sampler keyed = Make(with);
    const auto own = options.own.has_value() ? std::optional(options.own->rank) : std::nullopt;
    ForEachMicroBatch(options, [&](const Position& position, int64_t rank, int64_t micro) {
      const int64_t epoch = places.Begin(position).epoch;
      const auto order = Permutation(5, epoch, options.size, own);
      const KeyedPermutation keyed_order(5, epoch, options.size, own);
      std::vector<int64_t> expected, expected_keyed;
      for (const int64_t place : places.Samples(position, rank, micro)) {
        expected.push_back(order[place]);
        expected_keyed.push_back(keyed_order.At(place));
      }
      EXPECT_EQ(shuffled.Samples(position, rank, micro), expected);
      EXPECT_EQ(keyed.Samples(position, rank, micro), expected_keyed);
      // A new sampler gives the same samples, as after a restart in the middle of an epoch.
      EXPECT_EQ(Make(with).Samples(position, rank, micro), expected_keyed);
    });
  }
}

// Neither memory nor time depends on the number of samples.
TEST(SamplerTest, ShuffledV2TakesAnyNumberOfSamples) {
  Sampler sampler =
      Make({.size = int64_t{1} << 62, .world_size = 2, .per_rank = 3, .order = Order::kShuffledV2});
  const Position middle{.epoch = 1, .cursor = int64_t{1} << 61};
  const KeyedPermutation order(0, 1, int64_t{1} << 62);
  const int64_t first = middle.cursor + 3;  // of rank 1
  EXPECT_THAT(sampler.Samples(middle, 1, 0),
              ElementsAre(order.At(first), order.At(first + 1), order.At(first + 2)));
}

TEST(SamplerTest, ImpossibleOptionsAreRefused) {
  EXPECT_THAT(
      std::string(Sampler::Create({.size = 5, .world_size = 2, .per_rank = 3}).status().message()),
      HasSubstr("the data has 5 samples, less than one step takes: 2 ranks x 1 micro-batches"));
  EXPECT_FALSE(Sampler::Create({.size = 0, .last = Last::kPad}).ok());
  EXPECT_FALSE(Sampler::Create({.size = 0, .last = Last::kUneven}).ok());
  EXPECT_FALSE(Sampler::Create({.size = 0, .last = Last::kUneven, .own = OwnFile{}}).ok());
}

}  // namespace
}  // namespace muster::data
