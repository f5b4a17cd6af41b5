// Numbers and texts of this process as tensors in host memory, and back. The collectives of the
// control communicator carry such tensors, and loops over elements that run on the CPU use them.
#ifndef MUSTER_WORKER_DEVICE_HOST_VALUES_H_
#define MUSTER_WORKER_DEVICE_HOST_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/types/span.h"

namespace muster::device {

// The elements of a contiguous tensor on the CPU whose type is T: float, double, int64_t, uint8_t.
// They are valid as long as the tensor's memory. Throws c10::Error for a tensor of another type or
// on another device. The first form is for elements that are written; it changes no version
// counter.
template <typename T>
absl::Span<T> MutableHostValues(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu(), "expected a tensor on the CPU; it is on ", tensor.device());
  return {tensor.mutable_data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}
template <typename T>
absl::Span<const T> HostValues(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu(), "expected a tensor on the CPU; it is on ", tensor.device());
  return {tensor.const_data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

// A new tensor [values.size()] with these values.
at::Tensor HostTensor(absl::Span<const int64_t> values);
at::Tensor HostTensor(absl::Span<const double> values);

// The bytes of a tensor of bytes on the CPU. They are valid as long as the tensor's memory.
std::string_view TextOf(const at::Tensor& bytes);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_HOST_VALUES_H_
