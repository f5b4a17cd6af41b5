#include "worker/checkpoint/state.h"

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<StateTensor> Floats(const std::vector<int64_t>& elements) {
  std::vector<StateTensor> tensors;
  for (const int64_t n : elements) {
    tensors.push_back({"param", "p" + std::to_string(tensors.size()), at::empty({n}, at::kFloat)});
  }
  return tensors;
}

std::string Error(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

using Entry = std::tuple<int64_t, int64_t, int64_t>;  // item, begin, end

std::vector<Entry> EntriesOf(const State& state, int rank) {
  const auto parts = PartsByRank(state);
  std::vector<Entry> entries;
  for (const sharding::Range& range : parts[rank]) {
    entries.push_back({range.parameter, range.begin, range.end});
  }
  return entries;
}

// The expected files are those that ddp has always written. Readers of the format do not depend on
// the order, but checkpoints should not change without need.
TEST(ReplicatedTest, RanksWriteEvenPartsAndItemsWithoutElementsLieBeforeWhatFollows) {
  const State state = Replicated(Floats({35, 0, 35, 1, 3, 0, 40, 0}), 3);
  EXPECT_THAT(EntriesOf(state, 0), ElementsAre(Entry{0, 0, 32}));
  EXPECT_THAT(EntriesOf(state, 1),
              ElementsAre(Entry{0, 32, 35}, Entry{1, 0, 0}, Entry{2, 0, 35}, Entry{3, 0, 1},
                          Entry{4, 0, 3}, Entry{5, 0, 0}, Entry{6, 0, 6}));
  EXPECT_THAT(EntriesOf(state, 2), ElementsAre(Entry{6, 6, 40}, Entry{7, 0, 0}));
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(CheckWritable(state, rank, 3).ok());
}

TEST(ReplicatedTest, NothingAtAllIsTheLastRanks) {
  const State state = Replicated(Floats({0, 0}), 2);
  EXPECT_THAT(EntriesOf(state, 0), IsEmpty());
  EXPECT_THAT(EntriesOf(state, 1), ElementsAre(Entry{0, 0, 0}, Entry{1, 0, 0}));
  EXPECT_TRUE(CheckWritable(state, 0, 2).ok());
  EXPECT_TRUE(CheckWritable(Replicated({}, 2), 1, 2).ok());
}

// The expected writers are computed element by element from the format's description: part r ends
// after floor(grains * (r + 1) / ranks) grains of 16.
TEST(ReplicatedTest, EveryElementIsWrittenByTheRankOfItsGrainForRandomShapes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<int64_t> elements(random() % 12);
    for (int64_t& n : elements) n = random() % 4 == 0 ? random() % 2 : random() % 200;
    const int ranks = 1 + random() % 6;
    const int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t{0});
    const int64_t grains = (total + 15) / 16;
    const auto writer = [&](int64_t element) {  // for `total`: the last writer
      int rank = 0;
      while (rank + 1 < ranks && element >= std::min(total, grains * (rank + 1) / ranks * 16))
        ++rank;
      return rank;
    };
    std::vector<std::vector<Entry>> expected(ranks);
    int64_t at = 0;
    for (size_t item = 0; item < elements.size(); at += elements[item], ++item) {
      if (elements[item] == 0) expected[writer(at)].push_back({item, 0, 0});
      for (int64_t i = 0; i < elements[item]; ++i) {
        std::vector<Entry>& entries = expected[writer(at + i)];
        if (i == 0 || writer(at + i) != writer(at + i - 1)) entries.push_back({item, i, i});
        std::get<2>(entries.back()) = i + 1;
      }
    }
    const State state = Replicated(Floats(elements), ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_EQ(EntriesOf(state, rank), expected[rank]) << trial;
      ASSERT_TRUE(CheckWritable(state, rank, ranks).ok());
    }
  }
}

// The state of rank 1 of 2 in a sharded strategy: parameters everywhere, moments in slices. `step`
// is on ranks that have a slice.
State Sharded() {
  StateBuilder builder(2);
  builder.AddReplicated("param", "w", at::arange(40, at::kFloat).view({4, 10}));
  builder.AddSharded({"exp_avg", "w", {4, 10}}, {{0, 0, 16}, {1, 16, 40}});
  builder.Hold(16, at::arange(24, at::kFloat));
  builder.AddSharded({"step", "w", {}}, {{0, 0, 1}});
  builder.Hold(0, at::arange(1, at::kFloat).view(at::IntArrayRef{}));
  builder.AddSharded({"exp_avg", "b", {3}}, {{0, 0, 3}, {1, 3, 3}});
  builder.AddReplicated("buffer", "n", at::arange(30, at::kLong));
  return builder.Build();
}

TEST(StateBuilderTest, WholeItemsAreCutEvenlyAndPartsStayWhereTheyAre) {
  const State state = Sharded();
  ASSERT_TRUE(CheckWritable(state, 1, 2).ok()) << CheckWritable(state, 1, 2);
  EXPECT_THAT(EntriesOf(state, 0),
              ElementsAre(Entry{0, 0, 32}, Entry{1, 0, 16}, Entry{2, 0, 1}, Entry{3, 0, 3}));
  EXPECT_THAT(EntriesOf(state, 1),
              ElementsAre(Entry{0, 32, 40}, Entry{1, 16, 40}, Entry{4, 0, 30}));
}

TEST(CheckWritableTest, WhoWritesWhatItDoesNotHoldIsNamed) {
  EXPECT_EQ(Error(CheckWritable(Sharded(), 0, 2)),
            "state of rank 0: exp_avg/w: writes elements [0, 16) but holds [16, 40); exp_avg/b: "
            "writes elements [0, 3) "
            "but holds none");
}

TEST(CheckWritableTest, WhatIsNotWrittenOnceIsNamed) {
  State state = Sharded();
  state.written.holders[1][2].begin = 20;
  EXPECT_THAT(Error(CheckWritable(state, 1, 2)), HasSubstr("'exp_avg/w': elements [16, 20)"));
  state.written.holders[1][2].begin = 12;
  EXPECT_THAT(Error(CheckWritable(state, 1, 2)), HasSubstr("'exp_avg/w': elements [12, 16)"));
  state.written.holders[1][2].end = 41;
  EXPECT_THAT(Error(CheckWritable(state, 1, 2)),
              HasSubstr("[12, 41) of 'exp_avg/w', which has 40"));
}

TEST(CheckWritableTest, TwoPiecesOfAnItemOnOneRankAreRefused) {
  State state = Sharded();
  state.written.holders[1][2].begin = 30;
  state.written.holders[1].push_back({1, 16, 30});
  EXPECT_EQ(Error(CheckWritable(state, 1, 2)), "state exp_avg/w: rank 1 writes two pieces of it");
}

TEST(CheckWritableTest, AnotherNumberOfRanksOrItemsIsRefused) {
  State state = Sharded();
  EXPECT_EQ(Error(CheckWritable(state, 1, 3)), "state: expected 3 ranks that write it, found 2");
  state.items[0].shape = {41};
  EXPECT_EQ(Error(CheckWritable(state, 1, 2)),
            "state: the sizes of what the ranks write are not those of the items");
}

TEST(CheckStateTest, TensorsThatCannotBeWrittenAreNamed) {
  EXPECT_EQ(Error(CheckState(Replicated({{"param", "w", at::arange(4, at::kDouble)}}, 1))),
            "state param/w: expected Float or Long, found Double");
  EXPECT_FALSE(CheckState(Replicated({{"param", "w", at::Tensor()}}, 1)).ok());
  EXPECT_EQ(Error(CheckState(
                Replicated({{"param", "w", at::arange(4, at::kFloat).view({2, 2}).t()}}, 1))),
            "state param/w: expected a contiguous tensor of Float, found a strided Float");
  State state = Replicated(Floats({4}), 1);
  state.held[0].tensor = at::arange(4, at::kLong);
  EXPECT_EQ(Error(CheckState(state)),
            "state param/p0: expected a contiguous tensor of Float, found Long");
  state.held[0].tensor = at::Tensor();
  EXPECT_EQ(Error(CheckState(state)), "state param/p0: an undefined tensor");
}

TEST(CheckStateTest, PiecesOutsideTheirItemAreNamed) {
  State state = Sharded();
  state.held[1].begin = 17;
  EXPECT_EQ(Error(CheckState(state)),
            "state exp_avg/w: expected a piece of its 40 elements, found [17, 41)");
  state.held[1].begin = -1;
  EXPECT_THAT(Error(CheckState(state)), HasSubstr("found [-1, 23)"));
  state.held[1].item = 5;
  EXPECT_EQ(Error(CheckState(state)), "state: a piece of item 5, expected one of 5");
  state.held[1].item = 0;
  EXPECT_EQ(Error(CheckState(state)), "state param/w: two pieces on one rank");
}

TEST(AveragedWeightsTest, AveragesTakeThePlaceOfTheParametersIfThereAreAny) {
  StateBuilder builder(2);
  builder.AddReplicated("param", "w", at::arange(40, at::kFloat));
  builder.AddReplicated("buffer", "mean", at::arange(3, at::kFloat));
  builder.AddSharded({"exp_avg", "w", {40}}, {{0, 0, 16}, {1, 16, 40}});
  EXPECT_EQ(AveragedWeights(builder.Build()).items.size(), 2u) << "the parameter and the buffer";
  builder.AddSharded({kAverageSlot, "w", {40}}, {{0, 0, 32}, {1, 32, 40}});
  const at::Tensor mine = at::empty({8});
  builder.Hold(32, mine);
  const State state = builder.Build();
  EXPECT_EQ(Only(state, IsOptimizers).items.size(), 1u) << "averages are no optimizer's state";
  const State weights = AveragedWeights(state);
  ASSERT_EQ(weights.items.size(), 2u);
  EXPECT_EQ(Name(weights.items[0]), "buffer/mean");
  EXPECT_EQ(Name(weights.items[1]), "param/w");
  EXPECT_THAT(EntriesOf(weights, 1), ElementsAre(Entry{0, 0, 3}, Entry{1, 32, 40}));
  EXPECT_TRUE(weights.held.back().tensor.is_same(mine)) << "not a copy";
  EXPECT_EQ(weights.held.back().begin, 32);
}

TEST(CheckStateTest, ANameThatIsThereTwiceIsRefused) {
  std::vector<StateTensor> tensors = Floats({4, 4});
  tensors[1].parameter = "p0";
  EXPECT_EQ(Error(CheckState(Replicated(tensors, 1))), "state param/p0 appears twice");
}

}  // namespace
}  // namespace muster::checkpoint
