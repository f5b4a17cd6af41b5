#include "worker/models/exported/input.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::models::exported {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = InputSpec::Kind;

// A shape whose first size is the number of samples.
TensorShape Sized(const std::string& name, c10::ScalarType type, std::vector<int64_t> sizes) {
  TensorShape shape = {.name = name, .type = type, .dimensions = {{.is_batch = true}}};
  for (const int64_t size : sizes) shape.dimensions.push_back({.size = size});
  return shape;
}

Manifest WithLogits(std::vector<TensorShape> inputs, std::vector<int64_t> sizes) {
  return {.inputs = std::move(inputs), .output = Sized("", at::kFloat, std::move(sizes))};
}

Manifest WithLoss(std::vector<TensorShape> inputs, LossTerms terms) {
  return {.inputs = std::move(inputs), .returns_loss = true, .terms = std::move(terms)};
}

TEST(InputTest, OneInputOfTokensOrRowsTakesTheDataOfBuiltInModels) {
  const auto tokens = InputOf(WithLogits({Sized("ids", at::kLong, {12})}, {12, 61}));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->kind, Kind::kTokens);
  EXPECT_EQ(tokens->context, 12);
  EXPECT_EQ(tokens->vocab_size, 61);
  TensorShape few = Sized("ids", at::kLong, {12});
  few.below = 50;
  EXPECT_EQ(InputOf(WithLogits({few}, {12, 61}))->vocab_size, 50) << "the model takes no others";
  const auto rows = InputOf(WithLogits({Sized("x", at::kFloat, {3, 4})}, {5}));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->kind, Kind::kRows);
  EXPECT_EQ(rows->row_elements, 12);
  EXPECT_EQ(rows->classes, 5);
}

TEST(InputTest, OtherInputsAreTakenByName) {
  const auto one = InputOf(WithLogits({Sized("ids", at::kLong, {12})}, {5}));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->kind, Kind::kArrays);
  EXPECT_EQ(one->classes, 5);
  EXPECT_THAT(one->target_shape, IsEmpty());
  const auto two =
      InputOf(WithLogits({Sized("ids", at::kInt, {12}), Sized("mask", at::kBool, {12})}, {12, 7}));
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->arrays.at(1).name, "mask");
  EXPECT_THAT(two->target_shape, ElementsAre(12));
  EXPECT_EQ(two->TargetsOfSample(), 12);
}

TEST(InputTest, ALossCountsItsTargetsOrTheSamples) {
  TensorShape ids = Sized("input_ids", at::kLong, {12});
  ids.below = 61;
  const TensorShape labels = Sized("labels", at::kLong, {12});
  const auto counted = InputOf(WithLoss({ids, labels}, {.input = "labels", .first = 1}));
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_TRUE(counted->own_loss);
  EXPECT_EQ(counted->counted->input, 1);
  EXPECT_EQ(counted->TargetsOfSample(), 11);
  // Tokens can fill these inputs.
  EXPECT_EQ(counted->vocab_size, 61);
  EXPECT_EQ(counted->context, 12);
  const auto samples = InputOf(WithLoss({ids, labels}, {}));
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ(samples->TargetsOfSample(), 1);
  EXPECT_EQ(samples->vocab_size, 0);
}

TEST(InputTest, WhatNoDataSetFitsIsRefused) {
  const TensorShape x = Sized("x", at::kFloat, {3});
  Manifest free = WithLogits({x}, {2});
  free.inputs[0].dimensions.push_back({});
  Manifest wide = WithLogits({x}, {2});
  wide.output.type = at::kDouble;
  Manifest sized = WithLoss({x}, {});
  sized.output.dimensions.push_back({.is_batch = true});
  const struct {
    Manifest manifest;
    const char* expected;
  } cases[] = {
      {free, "inputs: 'x': expected numbers as the sizes of a sample"},
      {WithLogits({Sized("x", at::kFloat, {int64_t{1} << 40, int64_t{1} << 40})}, {2}),
       "as many as int64 can count"},
      {WithLogits({Sized("x", at::kFloat, {0})}, {2}), "expected sizes from 1 on"},
      {WithLogits({Sized("x", at::kByte, {3})}, {2}), "expected float32, int64, int32 or bool"},
      {WithLogits({x}, {}), "output: expected logits [batch, ..., classes]"},
      {wide, "output: expected float32, found Double"},
      {sized, "output: expected a loss without dimensions"},
      {WithLoss({x}, {.input = "y"}), "the name of an int64 input, found 'y'"},
      {WithLoss({Sized("x", at::kLong, {1})}, {.input = "x", .first = 1}),
       "with two targets or more, found 'x'"},
      {WithLoss({x}, {.input = "x"}), "the name of an int64 input, found 'x'"},
      {WithLoss({Sized("x", at::kLong, {})}, {.input = "x", .first = 1}), "found 'x'"},
  };
  for (const auto& [manifest, expected] : cases) {
    const auto input = InputOf(manifest);
    EXPECT_EQ(input.status().code(), absl::StatusCode::kInvalidArgument) << expected;
    EXPECT_THAT(std::string(input.status().message()), HasSubstr(expected));
  }
}

}  // namespace
}  // namespace muster::models::exported
