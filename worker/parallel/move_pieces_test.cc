#include "worker/parallel/move_pieces.h"

#include <gtest/gtest.h>

#include <random>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

// Cuts every parameter at random places, one part for each rank. With `twice`, every rank holds
// some parameters in whole.
sharding::Placement RandomPlacement(const std::vector<int64_t>& elements, int ranks, bool twice,
                                    std::mt19937& random) {
  sharding::Placement placement;
  placement.elements = elements;
  placement.holders.resize(ranks);
  for (size_t i = 0; i < elements.size(); ++i) {
    std::vector<int64_t> cuts = {0, elements[i]};
    for (int cut = 0; cut + 1 < ranks; ++cut) {
      cuts.push_back(std::uniform_int_distribution<int64_t>(0, elements[i])(random));
    }
    std::sort(cuts.begin(), cuts.end());
    const int first = static_cast<int>(random() % ranks);
    for (int part = 0; part < ranks; ++part) {
      const sharding::Range range{static_cast<int64_t>(i), cuts[part], cuts[part + 1]};
      if (range.begin < range.end) placement.holders[(first + part) % ranks].push_back(range);
    }
    if (!twice || random() % 3 != 0) continue;
    for (auto& ranges : placement.holders) {  // every rank holds this parameter in whole
      std::erase_if(ranges,
                    [&](const auto& range) { return range.parameter == static_cast<int64_t>(i); });
      if (elements[i] > 0) ranges.push_back({static_cast<int64_t>(i), 0, elements[i]});
    }
  }
  return placement;
}

at::ScalarType TypeOf(size_t parameter) { return parameter % 3 == 2 ? at::kDouble : at::kFloat; }

std::vector<Piece> Allocate(const sharding::Placement& placement, int rank, bool fill) {
  std::vector<Piece> pieces;
  for (const sharding::Range& range : placement.holders[rank]) {
    Piece piece{.parameter = static_cast<size_t>(range.parameter), .begin = range.begin};
    piece.tensor = at::empty({range.end - range.begin}, at::TensorOptions(TypeOf(range.parameter)));
    for (int64_t i = 0; i < piece.tensor.numel(); ++i) {
      piece.tensor[i] =
          fill ? static_cast<double>(range.parameter * 100000 + range.begin + i) : -1.0;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

TEST(MovePieces, AnyPlacementBecomesAnyOther) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t round : {int64_t{1} << 20, int64_t{100}, int64_t{1}}) {
      RunRanks(ranks, [&](comm::Communicator& communicator) {
        std::mt19937 random(ranks * 7 + static_cast<int>(round));
        const std::vector<int64_t> elements = {40, 0, 17, 1, 63};
        const std::vector<int64_t> bytes = {4, 4, 8, 4, 4};
        for (int repeat = 0; repeat < 5; ++repeat) {
          Arrangement from{.holders = RandomPlacement(elements, ranks, true, random)};
          Arrangement to{.holders = RandomPlacement(elements, ranks, true, random)};
          from.held = Allocate(from.holders, communicator.rank(), true);
          to.held = Allocate(to.holders, communicator.rank(), false);
          const int64_t sent_before = communicator.bytes_sent();
          const auto moved = MovePieces(from, to, bytes, &communicator, {"test", 3}, round);
          ASSERT_TRUE(moved.ok()) << moved.status();
          EXPECT_EQ(*moved, *BytesToMove(from.holders, to.holders, bytes));
          const auto expected = Allocate(to.holders, communicator.rank(), true);
          for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(SameBits(to.held[i].tensor, expected[i].tensor));
          }
          at::Tensor sent = at::empty({1}, at::kLong);
          sent[0] = communicator.bytes_sent() - sent_before;
          ASSERT_TRUE(communicator.AllReduceSum(sent, {"sent", 0})->Wait().ok());
          EXPECT_EQ(sent.data_ptr<int64_t>()[0], *moved);
        }
      });
    }
  }
}

TEST(MovePieces, WhatNobodyHasIsAnErrorOnAllRanks) {
  RunRanks(2, [&](comm::Communicator& communicator) {
    Arrangement from{.holders = {.elements = {4}, .holders = {{}, {}}}};
    Arrangement to{.holders = {.elements = {4}, .holders = {{{0, 0, 4}}, {}}}};
    to.held = Allocate(to.holders, communicator.rank(), false);
    EXPECT_EQ(MovePieces(from, to, {4}, &communicator, {"test", 3}).status().code(),
              absl::StatusCode::kDataLoss);
  });
}

TEST(MovePieces, PiecesThatAreNotThePlacementsAreRefused) {
  RunRanks(1, [&](comm::Communicator& communicator) {
    Arrangement from{.holders = {.elements = {4}, .holders = {{{0, 0, 4}}}}};
    EXPECT_EQ(MovePieces(from, from, {4}, &communicator, {"test", 3}).status().code(),
              absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace muster::parallel
