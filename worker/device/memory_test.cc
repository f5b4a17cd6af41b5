#include "worker/device/memory.h"

#include <cstdint>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "gtest/gtest.h"

namespace muster::device {
namespace {

std::vector<float> Values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

at::Tensor Counting(int64_t count) { return at::arange(count, at::TensorOptions(at::kFloat)); }

TEST(DeviceMemory, CopiesBytesBetweenPlaces) {
  const at::Tensor to = at::full({5}, -1, at::TensorOptions(at::kFloat));
  CopyBytes(to, 4, Counting(4), 8, 8);
  EXPECT_EQ(Values(to), (std::vector<float>{-1, 2, 3, -1, -1}));
  CopyBytes(to, 0, Counting(4), 0, 0);
  CopyAll(to, at::empty({0}));
  EXPECT_EQ(Values(to), (std::vector<float>{-1, 2, 3, -1, -1}));
  CopyAll(to, Counting(3));
  EXPECT_EQ(Values(to), (std::vector<float>{0, 1, 2, -1, -1}));
}

TEST(DeviceMemory, CopiesToItsOwnPlace) {
  const at::Tensor one = Counting(3);
  CopyBytes(one, 4, one, 4, 8);
  EXPECT_EQ(Values(one), (std::vector<float>{0, 1, 2}));
}

TEST(DeviceMemory, ZerosAreWrittenWithinTheirBoundsOnly) {
  const at::Tensor one = at::full({4}, 7, at::TensorOptions(at::kFloat));
  ZeroBytes(one, 4, 12);
  ZeroBytes(one, 16, 16);
  EXPECT_EQ(Values(one), (std::vector<float>{7, 0, 0, 7}));
}

TEST(DeviceMemory, AutogradSeesNothing) {
  const at::Tensor one = Counting(4).requires_grad_(true);
  const at::Tensor product = one * one;  // saves `one`
  const auto version = one._version();
  ZeroBytes(one, 0, 4);
  CopyAll(one, Counting(2));
  EXPECT_EQ(one._version(), version);
  EXPECT_NO_THROW(product.sum().backward());
}

TEST(DeviceMemory, TheHashesDependOnAllBytes) {
  const at::Tensor one = Counting(100);
  const at::Tensor before = Hashes(at::kCPU, {one, one.narrow(0, 1, 3)});
  EXPECT_TRUE(Hashes(at::kCPU, {Counting(100), Counting(100).narrow(0, 1, 3)}).equal(before));
  ZeroBytes(one, 399, 400);  // the last number's sign and exponent
  const at::Tensor after = Hashes(at::kCPU, {one, one.narrow(0, 1, 3)});
  EXPECT_FALSE(after[0].equal(before[0]));
  EXPECT_TRUE(after[1].equal(before[1]));
}

TEST(DeviceMemory, HostLikeHasTheShapeAndTheType) {
  const at::Tensor like = HostLike(at::empty({2, 3}, at::TensorOptions(at::kBFloat16)));
  EXPECT_EQ(like.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(like.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(like.is_cpu());
}

TEST(DeviceMemory, StorageComesAndGoes) {
  const at::Tensor one = Counting(6);
  const at::Tensor view = one.narrow(0, 2, 2);
  ResizeStorage(one, 0);
  EXPECT_EQ(one.storage().nbytes(), 0u);
  ResizeStorage(one, 24);
  EXPECT_EQ(one.storage().nbytes(), 24u);
  CopyAll(one, Counting(6));
  EXPECT_EQ(Values(view), (std::vector<float>{2, 3}));
}

}  // namespace
}  // namespace muster::device
