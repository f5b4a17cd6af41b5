#include "worker/parallel/gradients/unused_pieces.h"

#include <cmath>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/item.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/signbit.h"
#include "ATen/ops/sum.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace muster::parallel {
namespace {

at::Tensor MarkedTensor(int64_t elements, at::ScalarType type = at::kFloat) {
  at::Tensor tensor = at::ones({elements}, type);
  Mark(tensor, 0, elements);
  return tensor;
}

// Asks both functions, which must agree.
bool Marked(const at::Tensor& tensor) {
  EXPECT_EQ(MarkedOnDevice(tensor).item<float>(), IsMarked(tensor) ? 1 : 0);
  return IsMarked(tensor);
}

TEST(UnusedMark, ASumHasTheMarkOnlyIfAllContributionsHaveIt) {
  const at::Tensor marked = MarkedTensor(5);
  EXPECT_TRUE(Marked(marked));
  EXPECT_TRUE(Marked((marked + marked + marked) / 3));
  EXPECT_FALSE(Marked(marked + at::zeros({5})));
  EXPECT_FALSE(Marked((at::zeros({5}) + marked) / 2));
  EXPECT_FALSE(Marked(at::ones({5}) + at::ones({5}) * -1 + marked));
  EXPECT_TRUE(Marked(MarkedTensor(3, at::kDouble)));
  EXPECT_TRUE(Marked(marked.to(at::kBFloat16).to(at::kFloat)));
}

TEST(UnusedMark, TheMarkAddsNothing) {
  const at::Tensor numbers = at::arange(4) * 0.3 - 0.3;  // one of the numbers is zero
  EXPECT_TRUE((numbers + MarkedTensor(4)).equal(numbers));
}

TEST(UnusedMark, OnlyTheseElementsAreWritten) {
  const at::Tensor flat = at::ones({6});
  Mark(flat, 2, 4);
  Mark(flat, 5, 5);
  EXPECT_TRUE(Marked(flat.narrow(0, 2, 2)));
  EXPECT_EQ(flat.sum().item<float>(), 4);
  EXPECT_FALSE(Marked(flat)) << "some elements are not";
  EXPECT_FALSE(Marked(at::ones({0}))) << "it has no element that could say so";
}

TEST(UnusedMark, AGradientThatIsNegativeZeroLosesTheMarkWhenItIsCopied) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor to = at::ones({4}, type);
    CopyUnmarked(to, MarkedTensor(4, type));
    EXPECT_FALSE(Marked(to));
    EXPECT_EQ(to.signbit().sum().item<int64_t>(), 0);
  }
  const at::Tensor to = at::ones({2, 3});
  CopyUnmarked(to, MarkedTensor(6).view({3, 2}).t());
  EXPECT_EQ(to.signbit().sum().item<int64_t>(), 0) << "not contiguous";
  CopyUnmarked(to, MarkedTensor(6).view({2, 3}).to(at::kBFloat16));
  EXPECT_EQ(to.signbit().sum().item<int64_t>(), 0) << "another type";
}

TEST(UnusedMark, AllOtherNumbersAreCopiedAsTheyAre) {
  const at::Tensor numbers = at::arange(10) * 0.1 - 0.3;
  float* const values = numbers.mutable_data_ptr<float>();
  values[7] = 1e-45f;
  values[8] = -1e-45f;
  values[9] = INFINITY;
  const at::Tensor to = at::zeros({10});
  CopyUnmarked(to, numbers);
  EXPECT_TRUE(to.equal(numbers));
  CopyUnmarked(to, at::full({10}, NAN));
  EXPECT_TRUE(std::isnan(to.sum().item<float>()));
}

}  // namespace
}  // namespace muster::parallel
