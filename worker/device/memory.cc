#include "worker/device/memory.h"

#include <xxhash.h>

#include <cstring>

#include "ATen/native/Resize.h"
#include "ATen/ops/empty.h"
#include "c10/core/GradMode.h"

namespace muster::device {
namespace {

// Some bytes of a tensor, as a tensor with a version counter of its own.
at::Tensor BytesOf(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.variable_data().view({-1}).view(at::kByte).narrow(0, begin, count);
}

char* Address(const at::Tensor& tensor, int64_t begin) {
  return static_cast<char*>(tensor.mutable_data_ptr()) + begin;
}

const char* ConstAddress(const at::Tensor& tensor, int64_t begin) {
  return static_cast<const char*>(tensor.const_data_ptr()) + begin;
}

}  // namespace

void CopyBytes(const at::Tensor& to, int64_t to_begin, const at::Tensor& from, int64_t from_begin,
               int64_t bytes) {
  if (bytes == 0) return;
  // Without the cost of a dispatch, because models have hundreds of small parameters.
  if (to.is_cpu() && from.is_cpu()) {
    char* const target = Address(to, to_begin);
    const char* const source = ConstAddress(from, from_begin);
    if (target != source) std::memcpy(target, source, bytes);
    return;
  }
  const c10::NoGradGuard no_grad;
  BytesOf(to, to_begin, bytes).copy_(BytesOf(from, from_begin, bytes), /*non_blocking=*/true);
}

void CopyAll(const at::Tensor& to, const at::Tensor& from) {
  CopyBytes(to, 0, from, 0, static_cast<int64_t>(from.nbytes()));
}

void ZeroBytes(const at::Tensor& tensor, int64_t begin, int64_t end) {
  if (begin == end) return;
  if (tensor.is_cpu()) {
    std::memset(Address(tensor, begin), 0, end - begin);
    return;
  }
  const c10::NoGradGuard no_grad;
  BytesOf(tensor, begin, end - begin).zero_();
}

at::Tensor HostLike(const at::Tensor& tensor) {
  return at::empty(
      tensor.sizes(),
      at::TensorOptions(tensor.scalar_type()).device(at::kCPU).pinned_memory(!tensor.is_cpu()));
}

uint64_t Hash(const at::Tensor& tensor) {
  const at::Tensor here = tensor.is_cpu() ? tensor : tensor.detach().cpu();
  return XXH3_64bits(here.const_data_ptr(), here.nbytes());
}

void ResizeStorage(const at::Tensor& tensor, int64_t bytes) {
  TORCH_CHECK(tensor.is_cpu(), "there is no storage to resize on ", tensor.device());
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), bytes);
}

}  // namespace muster::device
