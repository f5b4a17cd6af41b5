#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {
namespace {

// A state with a parameter and a moment. All ranks hold the whole parameter. Rank 0 holds the first
// 30 elements of the moment, and rank 1 the others.
State Of(int rank) {
  StateBuilder builder(2);
  builder.AddReplicated("param", "w", at::arange(100, at::kFloat));
  builder.AddSharded({"exp_avg", "w", {50}}, {{0, 0, 30}, {1, 30, 50}});
  builder.Hold(rank == 0 ? 0 : 30, at::arange(rank == 0 ? 0 : 30, rank == 0 ? 30 : 50, at::kFloat));
  builder.AddReplicated("step", "w", at::full({}, 4.0f));
  return builder.Build();
}

TEST(SnapshotTest, ARankHasCopiesOfWhatItWrites) {
  for (const int rank : {0, 1}) {
    const State state = Of(rank);
    const State copy = Snapshot(state, rank);
    EXPECT_TRUE(CheckWritable(copy, rank, 2).ok()) << CheckWritable(copy, rank, 2);
    ASSERT_EQ(copy.held.size(), state.written.holders[rank].size());
    int64_t bytes = 0;
    std::vector<at::Tensor> before;
    for (const HeldPiece& piece : copy.held) {
      bytes += static_cast<int64_t>(piece.tensor.nbytes());
      before.push_back(piece.tensor.clone());
    }
    EXPECT_EQ(BytesWritten(state, rank), bytes);
    for (const HeldPiece& piece : state.held) piece.tensor.fill_(-1);
    for (size_t i = 0; i < copy.held.size(); ++i) {
      const HeldPiece& piece = copy.held[i];
      const sharding::Range& range = state.written.holders[rank][i];
      EXPECT_EQ(piece.begin, range.begin);
      EXPECT_EQ(piece.tensor.numel(), range.end - range.begin);
      EXPECT_TRUE(piece.tensor.equal(before[i]));
      const bool scalar = copy.items[piece.item].slot == "step";
      EXPECT_EQ(piece.tensor.view({-1})[0].item<float>(),
                scalar ? 4.0f : static_cast<float>(range.begin));
    }
  }
}

// A rank then finds the small pieces of all ranks in one block of each file.
TEST(ShardTest, SmallPiecesComeFirstInAFile) {
  StateBuilder builder(1);
  for (const char* const name : {"a", "b"}) {
    builder.AddReplicated("exp_avg", name, at::arange(2000, at::kFloat));
    builder.AddReplicated("step", name, at::full({}, 4.0f));
  }
  const State state = builder.Build();
  const auto parts = PartsByRank(state);
  std::vector<std::string> names;
  for (const sharding::Range& range : parts[0]) {
    names.push_back(Name(state.items[range.parameter]));
  }
  EXPECT_THAT(names, testing::ElementsAre("step/a", "step/b", "exp_avg/a", "exp_avg/b"));
}

TEST(SnapshotTest, WhatIsNotHeldIsMissing) {
  State state = Of(0);
  state.held.erase(state.held.begin() + 1);
  EXPECT_FALSE(CheckWritable(Snapshot(state, 0), 0, 2).ok());
}

TEST(SnapshotTest, OneOfChosenItemsHasTheirCopiesOnly) {
  for (const int rank : {0, 1}) {
    const State own = Only(Of(rank), IsOptimizers);
    std::vector<std::string> names;
    for (const StateItem& item : own.items) names.push_back(Name(item));
    EXPECT_THAT(names, testing::ElementsAre("exp_avg/w", "step/w"));
    EXPECT_TRUE(CheckWritable(own, rank, 2).ok()) << CheckWritable(own, rank, 2);
    ASSERT_EQ(own.held.size(), 2u);
    EXPECT_EQ(own.held[0].tensor.numel(), rank == 0 ? 30 : 20);
  }
}

}  // namespace
}  // namespace muster::checkpoint
