#include "worker/data/array_dataset.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/safetensors_dataset.h"

namespace muster::data {
namespace {

using safetensors::DType;
using ::testing::HasSubstr;

struct StoredArray {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <typename T>
StoredArray Stored(const std::string& name, DType dtype, std::vector<int64_t> shape,
                   const std::vector<T>& values) {
  return {name, dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

StoredArray TokenArray(std::vector<int64_t> values = {1, 2, 3, 4, 5, 6}) {
  return Stored<int64_t>("tokens", DType::kI64, {3, 2}, values);
}

StoredArray MaskArray() { return Stored<uint8_t>("mask", DType::kU8, {3, 2}, {1, 1, 1, 0, 0, 0}); }

StoredArray LabelArray(std::vector<int64_t> values = {0, -100, 2}) {
  return Stored<int64_t>("labels", DType::kI64, {3}, values);
}

// Two inputs, and classes as targets.
InputSpec TwoInputs() {
  return {.kind = InputSpec::Kind::kArrays,
          .classes = 3,
          .ignored = -100,
          .arrays = {{.name = "tokens", .type = at::kLong, .shape = {2}, .below = 7},
                     {.name = "mask", .type = at::kBool, .shape = {2}}}};
}

// Targets among the inputs, the first of which the model leaves out.
InputSpec LossOfItsOwn() {
  return {.kind = InputSpec::Kind::kArrays,
          .ignored = -100,
          .arrays = {{.name = "tokens", .type = at::kLong, .shape = {2}},
                     {.name = "labels", .type = at::kLong, .shape = {2}}},
          .own_loss = true,
          .counted = models::CountedInput{.input = 1, .first = 1}};
}

class ArrayDatasetTest : public ::testing::Test {
 protected:
  std::string File(const std::vector<StoredArray>& tensors) {
    std::vector<safetensors::Entry> entries;
    std::string data;
    for (const StoredArray& one : tensors) {
      entries.push_back({.name = one.name, .dtype = one.dtype, .shape = one.shape});
      data += one.bytes;
    }
    const auto plan = safetensors::Plan(entries, {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    const std::string path = dir_.Path("file-" + std::to_string(++files_));
    EXPECT_TRUE(files::WriteAtomically(path, plan->prefix + data).ok());
    return path;
  }

  // Returns the error of opening or, after success, of Check and of Read.
  std::string ErrorOf(const std::vector<StoredArray>& tensors, const InputSpec& spec,
                      const ArrayNames& names = {}) {
    const auto dataset =
        OpenSafetensors({File(tensors)}, spec, Emptiness::kRefused, Labels::kNeeded, names);
    if (!dataset.ok()) return std::string(dataset.status().message());
    const absl::Status checked = (*dataset)->Check({});
    if (!checked.ok()) return std::string(checked.message());
    const std::vector<int64_t> all = {0, 1, 2};
    return std::string((*dataset)->Read(all).status().message());
  }

  files::TempDir dir_;
  int files_ = 0;
};

TEST_F(ArrayDatasetTest, SamplesHaveEachArrayInTheOrderOfTheModelAndTheirTargets) {
  const auto dataset =
      OpenSafetensors({File({LabelArray(), MaskArray(), TokenArray()}),
                       File({TokenArray({6, 6, 6, 6, 0, 0}), MaskArray(), LabelArray()})},
                      TwoInputs());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 6);
  ASSERT_TRUE((*dataset)->Check({}).ok());
  const std::vector<int64_t> samples = {5, 1};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(batch->inputs.equal(at::tensor({0, 0, 3, 4}, at::kLong).view({2, 2})));
  ASSERT_EQ(batch->further.size(), 1);
  EXPECT_EQ(batch->further[0].scalar_type(), at::kBool);
  EXPECT_TRUE(
      batch->further[0].to(at::kLong).equal(at::tensor({0, 0, 1, 0}, at::kLong).view({2, 2})));
  EXPECT_TRUE(batch->targets.equal(at::tensor({2, -100}, at::kLong)));
  const Batch blank = (*dataset)->Blank(4);
  EXPECT_EQ(blank.further[0].sizes(), (at::IntArrayRef{4, 2}));
  EXPECT_EQ(blank.targets.sizes(), at::IntArrayRef{4});
}

TEST_F(ArrayDatasetTest, ALossOfTheModelItselfCountsItsTargets) {
  const StoredArray labels =
      Stored<int64_t>("labels", DType::kI64, {3, 2}, {1, 2, -100, 3, 4, -100});
  const auto dataset = OpenSafetensors({File({TokenArray(), labels})}, LossOfItsOwn());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const std::vector<int64_t> samples = {0, 2};
  const auto batch = (*dataset)->Read(samples);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_TRUE(batch->targets.equal(at::tensor({2, -100}, at::kLong).view({2, 1})));
  EXPECT_EQ(LossOfItsOwn().TargetsOfSample(), 1);
}

TEST_F(ArrayDatasetTest, NumbersAreTargetsOfTheShapeOfTheOutputOrFlat) {
  InputSpec spec = TwoInputs();
  spec.ignored = std::nullopt;
  spec.classes = 1;
  spec.target_numbers = 1;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3}, {3, 1}}) {
    const StoredArray labels = Stored<float>("labels", DType::kF32, shape, {1, 2, 3});
    const auto dataset = OpenSafetensors({File({TokenArray(), MaskArray(), labels})}, spec);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const std::vector<int64_t> samples = {2};
    EXPECT_EQ((*dataset)->Read(samples)->targets.item<float>(), 3);
  }
}

TEST_F(ArrayDatasetTest, TheJobMayNameTheArraysInAnyOrder) {
  EXPECT_EQ(ErrorOf({TokenArray(), MaskArray(), LabelArray()}, TwoInputs(),
                    {.inputs = {"mask", "tokens"}}),
            "");
  StoredArray other = LabelArray();
  other.name = "kind";
  EXPECT_EQ(ErrorOf({TokenArray(), MaskArray(), other}, TwoInputs(), {.targets = "kind"}), "");
  EXPECT_THAT(ErrorOf({TokenArray(), MaskArray(), LabelArray()}, TwoInputs(),
                      {.inputs = {"mask", "words"}}),
              HasSubstr("expected the model's inputs 'tokens', 'mask', found 'mask', 'words'"));
  EXPECT_THAT(ErrorOf({TokenArray(), MaskArray()}, LossOfItsOwn(), {.targets = "kind"}),
              HasSubstr("targets: expected one of the model's inputs 'tokens', 'labels'"));
  EXPECT_THAT(ErrorOf({TokenArray(), MaskArray()}, LossOfItsOwn(), {.inputs = {"tokens"}}),
              HasSubstr("'tokens', 'labels' (the model returns its loss, so its targets are among "
                        "them), found 'tokens'"));
}

TEST_F(ArrayDatasetTest, NamesThatWouldBeIgnoredAreRefused) {
  const std::string path = File({TokenArray(), MaskArray(), LabelArray()});
  const auto predict = OpenSafetensors({path}, TwoInputs(), Emptiness::kAllowed, Labels::kIgnored,
                                       {.targets = "labels"});
  EXPECT_THAT(std::string(predict.status().message()), HasSubstr("predictions read no targets"));
  InputSpec spec = TwoInputs();
  spec.arrays[0].name = "labels";
  EXPECT_THAT(ErrorOf({TokenArray(), MaskArray(), LabelArray()}, spec),
              HasSubstr("the model has an input 'labels'; expected the name of the array"));
}

TEST_F(ArrayDatasetTest, WhatDoesNotFitIsRefusedWithFileArrayAndPlace) {
  EXPECT_THAT(ErrorOf({TokenArray(), LabelArray()}, TwoInputs()),
              HasSubstr("expected the arrays 'tokens', 'mask', 'labels', found no 'mask'"));
  EXPECT_THAT(ErrorOf({TokenArray({1, 2, 3, 4, 5, 7}), MaskArray(), LabelArray()}, TwoInputs()),
              HasSubstr("tokens: row 2, byte offset "));
  EXPECT_THAT(ErrorOf({TokenArray({1, 2, 3, 4, 5, -1}), MaskArray(), LabelArray()}, TwoInputs()),
              HasSubstr("expected a whole number from 0 to 6, found -1"));
  EXPECT_THAT(ErrorOf({TokenArray(), MaskArray(), LabelArray({0, 1, 3})}, TwoInputs()),
              HasSubstr("labels: row 2"));
  EXPECT_THAT(
      ErrorOf({TokenArray(), Stored<uint8_t>("mask", DType::kU8, {3, 2}, {1, 1, 2, 0, 0, 0}),
               LabelArray()},
              TwoInputs()),
      HasSubstr("mask: row 1"));
  EXPECT_THAT(ErrorOf({TokenArray(), Stored<uint8_t>("mask", DType::kU8, {2, 2}, {1, 1, 1, 0}),
                       LabelArray()},
                      TwoInputs()),
              HasSubstr("mask: expected 3 samples as 'tokens' has, found 2"));
  EXPECT_THAT(ErrorOf({Stored<int64_t>("tokens", DType::kI64, {2, 3}, {1, 2, 3, 4, 5, 6}),
                       MaskArray(), LabelArray()},
                      TwoInputs()),
              HasSubstr("tokens: expected int64 [2, 2] as the model takes, found int64 [2, 3]"));
  EXPECT_THAT(ErrorOf({Stored<float>("tokens", DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6}),
                       MaskArray(), LabelArray()},
                      TwoInputs()),
              HasSubstr("found float32 [3, 2]; convert it to int64"));
  EXPECT_THAT(ErrorOf({Stored<int64_t>("tokens", DType::kI64, {}, {1}), MaskArray(), LabelArray()},
                      TwoInputs()),
              HasSubstr("found a single number"));
  InputSpec rows = TwoInputs();
  rows.kind = InputSpec::Kind::kRows;
  EXPECT_THAT(
      ErrorOf({TokenArray(), MaskArray(), LabelArray()}, rows, {.inputs = {"tokens", "mask"}}),
      HasSubstr("the model takes one input, found 'tokens', 'mask'"));
}

TEST_F(ArrayDatasetTest, NumbersThatAreNotFiniteAreFoundWhenTheyAreRead) {
  InputSpec spec = LossOfItsOwn();
  spec.arrays = {{.name = "x", .type = at::kFloat, .shape = {2}}};
  spec.counted = std::nullopt;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ErrorOf({Stored<float>("x", DType::kF32, {3, 2}, {1, 2, 3, nan, 5, 6})}, spec),
              HasSubstr("x: row 1, byte offset "));
}

TEST_F(ArrayDatasetTest, ConversionsAreNoted) {
  const StoredArray mask = Stored<int16_t>("mask", DType::kI16, {3, 2}, {1, 1, 1, 0, 0, 0});
  const auto dataset = OpenSafetensors({File({TokenArray(), mask, LabelArray()})}, TwoInputs());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ((*dataset)->notes().size(), 1);
  EXPECT_THAT((*dataset)->notes()[0].text, HasSubstr("mask: int16 is read as bool"));
}

}  // namespace
}  // namespace muster::data
