#include "worker/train/ranks/agreement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

using jobspec::Line;
using ::testing::Each;

using Lines = std::vector<Line>;

TEST(NameDifference, IsEmptyForEqualLines) {
  EXPECT_EQ(NameDifference({}, {}, 1), "");
  EXPECT_EQ(NameDifference({{"a", "1"}}, {{"a", "1"}}, 1), "");
}

TEST(NameDifference, NamesTheFirstPathThatDiffers) {
  const Lines first = {{"a", "1"}, {"b", "2"}, {"c", "3"}};
  EXPECT_EQ(NameDifference(first, {{"a", "1"}, {"b", "7"}, {"c", "8"}}, 2),
            "b: rank 0 has 2, rank 2 has 7");
  EXPECT_EQ(NameDifference(first, {{"a", "1"}, {"c", "3"}}, 2),
            "b: rank 0 has 2, rank 2 has nothing");
  EXPECT_EQ(NameDifference({{"a", "1"}, {"c", "3"}}, first, 4),
            "b: rank 0 has nothing, rank 4 has 2");
  EXPECT_EQ(NameDifference(first, {{"a", "1"}, {"b", "2"}}, 1),
            "c: rank 0 has 3, rank 1 has nothing");
  EXPECT_EQ(NameDifference({}, {{"a", "1"}}, 1), "a: rank 0 has nothing, rank 1 has 1");
  EXPECT_EQ(NameDifference(first, {{"b", "2"}, {"a", "1"}, {"c", "3"}}, 1),
            "the order: rank 0 has a where rank 1 has b");
}

// Returns the status that AgreeOn gives each rank; lines[rank]: the rank's lines.
std::vector<absl::Status> Agree(const std::vector<Lines>& lines) {
  std::vector<absl::Status> told(lines.size());
  RunRanks(static_cast<int>(lines.size()),
           [&](int rank, comm::Communicator& control, comm::Communicator&, comm::Communicator&) {
             told[rank] = AgreeOn("the job", lines[rank], &control);
           });
  return told;
}

TEST(AgreeOn, IsOkWhereAllRanksSayTheSame) {
  const Lines lines = {{"a", "1"}, {"b", "x: y"}};
  EXPECT_THAT(Agree({lines, lines, lines}), Each(absl::OkStatus()));
  EXPECT_THAT(Agree({Lines{}, Lines{}}), Each(absl::OkStatus()));
}

TEST(AgreeOn, TellsAllRanksTheSameDifference) {
  const Lines lines = {{"a", "1"}, {"b", "x: y"}};
  const auto expected = absl::FailedPreconditionError(
      "the ranks differ in the job: b: rank 0 has x: y, rank 2 has x: z and much longer");
  EXPECT_THAT(Agree({lines, lines, {{"a", "1"}, {"b", "x: z and much longer"}}}), Each(expected));
}

TEST(AgreeOn, NamesEachRankThatDiffersWithItsOwnFirstPath) {
  const Lines lines = {{"a", "1"}, {"b", "2"}};
  EXPECT_THAT(Agree({lines, {{"a", "1"}, {"b", "3"}}, lines, {{"a", "7"}, {"b", "8"}}}),
              Each(absl::FailedPreconditionError(
                  "the ranks differ in the job: b: rank 0 has 2, rank 1 has 3; a: rank 0 has 1, "
                  "rank 3 has 7")));
  std::vector<Lines> many(6, lines);
  for (int rank = 1; rank < 6; ++rank) many[rank][0].value = "9";
  EXPECT_THAT(Agree(many),
              Each(absl::FailedPreconditionError(
                  "the ranks differ in the job: a: rank 0 has 1, rank 1 has 9; a: rank 0 has 1, "
                  "rank 2 has 9; a: rank 0 has 1, rank 3 has 9; and 2 more")));
}

TEST(AgreeOn, SeesARankThatSaysNothing) {
  EXPECT_THAT(Agree({{{"a", "1"}}, Lines{}}),
              Each(absl::FailedPreconditionError(
                  "the ranks differ in the job: a: rank 0 has 1, rank 1 has nothing")));
}

class Layer : public models::Unit {
 public:
  Layer(std::vector<int64_t> shape, at::ScalarType type, const std::string& buffer) : Unit("") {
    AddParameter("weight", at::zeros(shape, type));
    if (!buffer.empty()) AddBuffer(buffer, at::zeros({3}));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override { return x; }
};

class OneLayerModel : public models::Model {
 public:
  explicit OneLayerModel(std::unique_ptr<Layer> layer) : Model("toy", std::move(layer)) {}
  models::InputSpec UnitsInput() const override { return {}; }
};

class ModelOfFiles : public OneLayerModel {
 public:
  using OneLayerModel::OneLayerModel;
  std::string file_hash() const override { return "12ab"; }
};

Lines LinesOfModel(std::vector<int64_t> shape, at::ScalarType type = at::kFloat,
                   const std::string& buffer = "") {
  return LinesOf(OneLayerModel(std::make_unique<Layer>(std::move(shape), type, buffer)));
}

TEST(LinesOf, ShowsShapesTypesAndBuffers) {
  EXPECT_EQ(LinesOfModel({2, 3}, at::kFloat, "mean"),
            (Lines{{"parameter weight", "[2, 3] Float"}, {"buffer mean", "[3] Float"}}));
  EXPECT_NE(LinesOfModel({2, 3}), LinesOfModel({3, 2}));
  EXPECT_NE(LinesOfModel({2, 3}), LinesOfModel({2, 3}, at::kBFloat16));
}

TEST(LinesOf, ShowsTheHashOfFilesThatSayWhatAModelComputes) {
  const ModelOfFiles model(std::make_unique<Layer>(std::vector<int64_t>{2}, at::kFloat, ""));
  EXPECT_EQ(LinesOf(model),
            (Lines{{"parameter weight", "[2] Float"}, {"hash of the model's files", "12ab"}}));
}

}  // namespace
}  // namespace muster::train
