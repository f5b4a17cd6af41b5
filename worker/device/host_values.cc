#include "worker/device/host_values.h"

#include <algorithm>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"

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

at::Tensor HostText(std::string_view text, int64_t bytes) {
  const at::Tensor tensor = at::zeros({bytes}, at::TensorOptions(at::kByte));
  const auto kept = text.substr(0, static_cast<size_t>(bytes));
  std::copy(kept.begin(), kept.end(), MutableHostValues<uint8_t>(tensor).begin());
  return tensor;
}

std::string_view TextOf(const at::Tensor& bytes) {
  const absl::Span<const uint8_t> values = HostValues<uint8_t>(bytes);
  return {reinterpret_cast<const char*>(values.data()), values.size()};
}

}  // namespace muster::device
