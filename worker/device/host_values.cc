#include "worker/device/host_values.h"

#include <algorithm>

#include "ATen/ops/empty.h"

namespace muster::device {
namespace {

template <typename T>
at::Tensor TensorOf(absl::Span<const T> values, at::ScalarType type) {
  const at::Tensor tensor =
      at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(type));
  std::copy(values.begin(), values.end(), MutableHostValues<T>(tensor).begin());
  return tensor;
}

}  // namespace

at::Tensor HostTensor(absl::Span<const int64_t> values) { return TensorOf(values, at::kLong); }

at::Tensor HostTensor(absl::Span<const double> values) { return TensorOf(values, at::kDouble); }

std::string_view TextOf(const at::Tensor& bytes) {
  const absl::Span<const uint8_t> values = HostValues<uint8_t>(bytes);
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

}  // namespace muster::device
