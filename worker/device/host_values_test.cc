#include "worker/device/host_values.h"

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"

namespace muster::device {
namespace {

TEST(HostValues, NumbersGoInAndComeOut) {
  const std::vector<int64_t> counts = {3, -1, int64_t{1} << 62};
  const at::Tensor tensor = HostTensor(counts);
  EXPECT_EQ(tensor.scalar_type(), at::kLong);
  const auto found = HostValues<int64_t>(tensor);
  EXPECT_EQ(std::vector<int64_t>(found.begin(), found.end()), counts);
  MutableHostValues<int64_t>(tensor)[1] = 8;
  EXPECT_EQ(HostValues<int64_t>(tensor)[1], 8);
  EXPECT_EQ(HostValues<double>(HostTensor(std::vector<double>{0.5}))[0], 0.5);
}

TEST(HostValues, AnotherTypeOrAnotherDeviceIsRefused) {
  const at::Tensor floats = at::empty({2});
  EXPECT_THROW(HostValues<int64_t>(floats), c10::Error);
  const at::Tensor elsewhere = at::empty({2}, at::TensorOptions(at::kFloat).device(at::kMeta));
  EXPECT_THROW(HostValues<float>(elsewhere), c10::Error);
  EXPECT_THROW(MutableHostValues<float>(elsewhere), c10::Error);
}

}  // namespace
}  // namespace muster::device
