#include "worker/models/model.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/eq.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/topk.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

std::vector<bool> Bools(const at::Tensor& tensor) {
  std::vector<bool> values;
  for (int64_t i = 0; i < tensor.numel(); ++i) values.push_back(tensor[i].item<bool>());
  return values;
}

TEST(Judged, TheTopIsThatOfTopk) {
  const at::Tensor logits = at::randn({40, 9}, MakeGenerator(1));
  std::vector<int64_t> targets(40);
  for (int64_t i = 0; i < 40; ++i) targets[i] = i * 5 % 9;
  const Judged judged = {logits, at::tensor(targets, at::kLong), {}};
  for (const int64_t k : {1, 5}) {
    const at::Tensor top = std::get<1>(logits.topk(k, 1));
    const at::Tensor expected = top.eq(judged.targets.unsqueeze(1)).sum(1);
    EXPECT_EQ(judged.InTop(k).sum().item<int64_t>(), expected.sum().item<int64_t>()) << k;
  }
  EXPECT_EQ(judged.InTop(1).sum().item<int64_t>(), judged.Correct().item<int64_t>());
}

TEST(Judged, OfEqualLogitsTheLowerClassIsTheLargerOne) {
  const at::Tensor logits = at::tensor({0.f, 0.f, 0.f, 0.f}).expand({4, 4});
  const Judged judged = {logits, at::tensor({0, 1, 2, 3}, at::kLong), {}};
  EXPECT_EQ(Bools(judged.InTop(2)), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(Bools(judged.InTop(1)), (std::vector<bool>{true, false, false, false}));
}

TEST(Judged, WhatIsIgnoredIsNeverRight) {
  const at::Tensor logits = at::tensor({3.f, 2.f, 1.f}).expand({3, 3});
  const at::Tensor targets = at::tensor({0, -100, 0}, at::kLong);
  const Judged judged = {logits, targets, targets.ne(-100)};
  EXPECT_EQ(Bools(judged.InTop(3)), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(judged.Correct().item<int64_t>(), 2);
  EXPECT_EQ(judged.Targets().sum().item<int64_t>(), 0);
  EXPECT_EQ(judged.Counted().sum().item<int64_t>(), 2);
}

TEST(Judged, ALogitThatIsNotANumberIsLargerThanTheTarget) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor logits = at::tensor({nan, 2.f, 1.f, nan, nan, nan}).view({2, 3});
  const Judged judged = {logits, at::tensor({1, 1}, at::kLong), {}};
  EXPECT_EQ(Bools(judged.InTop(1)), (std::vector<bool>{false, false}));
  EXPECT_EQ(Bools(judged.InTop(2)), (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace muster::models
