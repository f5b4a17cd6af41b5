#include "worker/models/value_watch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

using testing::HasSubstr;

class ValueWatchTest : public testing::Test {
 protected:
  // Returns the refusal of `body`; empty: none.
  std::string Refused(const std::function<void()>& body) {
    const ValueWatch watch(*model_, ValueWatch::Mode::kRefuse);
    try {
      body();
    } catch (const ModelError& error) {
      return error.what();
    }
    return "";
  }
  bool Writes(const std::function<void()>& body) {
    const ValueWatch watch(*model_, ValueWatch::Mode::kNote);
    body();
    return watch.written();
  }

  const std::unique_ptr<Model> model_ =
      *CreateFromJson("mlp", {{"inputs", 3}, {"hidden", {4}}, {"classes", 2}}, 1);
  const at::Tensor weight_ = model_->Parameters()[2].tensor;
  const std::string name_ = "parameter '" + model_->Parameters()[2].name + "'";
};

TEST_F(ValueWatchTest, AWriteIsRefusedByNameBeforeItIsDone) {
  const at::NoGradGuard no_grad;
  const at::Tensor before = weight_.clone();
  EXPECT_THAT(Refused([&] { weight_.mul_(2); }), HasSubstr("writes " + name_ + " (aten::mul_"));
  EXPECT_TRUE(weight_.equal(before));
}

TEST_F(ValueWatchTest, ReadsAreRefusedTooAlsoInLists) {
  EXPECT_THAT(Refused([&] { weight_.sum(); }), HasSubstr("uses " + name_ + " (aten::sum"));
  EXPECT_THAT(Refused([&] {
                at::stack({at::ones({2, 4}), weight_});
              }),
              HasSubstr("uses " + name_ + " (aten::stack"));
}

TEST_F(ValueWatchTest, WhatSharesAParametersMemoryIsItsValues) {
  const at::NoGradGuard no_grad;
  const at::Tensor data = weight_.data();
  const at::Tensor row = weight_.select(0, 0);
  EXPECT_THAT(Refused([&] { data.zero_(); }), HasSubstr("writes " + name_));
  EXPECT_THAT(Refused([&] { row.zero_(); }), HasSubstr("writes " + name_));
}

// Parameters share a storage in a bucket of sharded_ddp and in a unit of fsdp.
TEST_F(ValueWatchTest, OfParametersInOneStorageTheUsedOneIsNamed) {
  const at::NoGradGuard no_grad;
  const at::Tensor other = model_->Parameters()[0].tensor;
  const std::string other_name = "parameter '" + model_->Parameters()[0].name + "'";
  const int64_t elements = other.numel();
  const at::Tensor flat = at::ones({elements + weight_.numel()});
  other.set_data(flat.narrow(0, 0, elements).view(other.sizes()));
  weight_.set_data(flat.narrow(0, elements, weight_.numel()).view(weight_.sizes()));
  const at::Tensor row = weight_.data().select(0, 1);
  const at::Tensor column = weight_.data().select(1, 0);
  const at::Tensor other_row = other.data().select(0, 1);
  const at::Tensor nothing = flat.narrow(0, elements, 0);
  EXPECT_THAT(Refused([&] { weight_.mul_(2); }), HasSubstr("writes " + name_));
  EXPECT_THAT(Refused([&] { row.zero_(); }), HasSubstr("writes " + name_));
  EXPECT_THAT(Refused([&] { column.zero_(); }), HasSubstr("writes " + name_));
  EXPECT_THAT(Refused([&] { other_row.zero_(); }), HasSubstr("writes " + other_name));
  EXPECT_THAT(Refused([&] { flat.zero_(); }), HasSubstr("writes " + other_name));
  EXPECT_EQ(Refused([&] { nothing.zero_(); }), "");
}

TEST_F(ValueWatchTest, TheFirstRefusalIsKeptAlsoWhereTheExceptionIsCaught) {
  const ValueWatch watch(*model_, ValueWatch::Mode::kRefuse);
  EXPECT_EQ(watch.refusal(), "");
  EXPECT_THROW(weight_.sum(), ModelError);
  const at::Tensor other = model_->Parameters()[0].tensor;
  EXPECT_THROW(other.sum(), ModelError);
  EXPECT_THAT(watch.refusal(), HasSubstr("uses " + name_ + " (aten::sum"));
}

TEST_F(ValueWatchTest, FlagsShapesAndOtherTensorsAreFree) {
  EXPECT_EQ(Refused([&] {
              at::Tensor(weight_).requires_grad_(!weight_.requires_grad());
              EXPECT_EQ(weight_.size(0) + weight_.numel(), weight_.size(0) + weight_.numel());
              at::ones({3}).add_(1).sum();
            }),
            "");
  EXPECT_FALSE(weight_.requires_grad());
}

TEST_F(ValueWatchTest, NotesWritesAndNothingElse) {
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(Writes([&] { weight_.sum(); }));
  EXPECT_FALSE(Writes([&] { at::ones({3}).add_(1); }));
  EXPECT_TRUE(Writes([&] { weight_.mul_(1); }));
  EXPECT_TRUE(Writes([&] { weight_.data().select(0, 1).zero_(); }));
}

TEST_F(ValueWatchTest, EndsWithItsScope) {
  EXPECT_NE(Refused([&] { weight_.sum(); }), "");
  EXPECT_EQ(weight_.sum().dim(), 0);
}

}  // namespace
}  // namespace muster::models
