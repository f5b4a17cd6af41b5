#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/train/data/rank_data.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

absl::Status Check(const std::vector<uint32_t>& input, const std::vector<int64_t>& row) {
  v1::ModelSpec model;
  for (const uint32_t dimension : input) model.mutable_convnet()->add_inputs(dimension);
  return CheckRowShape(model, row);
}

TEST(RowShape, NeighbouringDimensionsMayBeJoinedOrSplit) {
  EXPECT_TRUE(Check({3, 8, 6}, {3, 8, 6}).ok());
  EXPECT_TRUE(Check({3, 8, 6}, {144}).ok());
  EXPECT_TRUE(Check({3, 8, 6}, {3, 48}).ok());
  EXPECT_TRUE(Check({3, 8, 6}, {24, 6}).ok());
  EXPECT_TRUE(Check({3, 8, 6}, {3, 2, 4, 6}).ok());
  EXPECT_TRUE(Check({1, 8, 8}, {8, 8}).ok());
  EXPECT_TRUE(Check({1, 8, 8}, {8, 8, 1}).ok()) << "one channel is in no other order";
}

TEST(RowShape, AnotherOrderIsRefused) {
  EXPECT_THAT(std::string(Check({3, 8, 6}, {8, 6, 3}).message()),
              HasSubstr("expected [N, 3, 8, 6] as the model takes, found [N, 8, 6, 3], the same "
                        "numbers in another order"));
  EXPECT_FALSE(Check({3, 8, 6}, {3, 6, 8}).ok());
  EXPECT_FALSE(Check({3, 8, 6}, {48, 3}).ok());
}

TEST(RowShape, ATorchscriptModelHasAShapeToo) {
  v1::ModelSpec model;
  for (const uint32_t dimension : {3, 4}) model.mutable_torchscript()->add_inputs(dimension);
  EXPECT_TRUE(CheckRowShape(model, {12}).ok());
  EXPECT_FALSE(CheckRowShape(model, {4, 3}).ok());
}

TEST(RowShape, OtherModelsTakeRowsOfAnyShape) {
  v1::ModelSpec model;
  model.mutable_mlp()->set_inputs(12);
  EXPECT_TRUE(CheckRowShape(model, {4, 3}).ok());
}

}  // namespace
}  // namespace muster::train
