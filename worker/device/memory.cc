#include "worker/device/memory.h"

#include <xxhash.h>

#include <cstring>
#include <utility>

#include "ATen/native/Resize.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "c10/core/GradMode.h"
#ifdef MUSTER_CUDA
#include "ATen/native/cuda/Resize.h"
#endif

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

void CopyFromHost(const at::Tensor& to, int64_t begin, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  if (to.is_cpu()) {
    std::memcpy(Address(to, begin), from, bytes);
    return;
  }
  const c10::NoGradGuard no_grad;
  BytesOf(to, begin, bytes)
      .copy_(at::from_blob(const_cast<void*>(from), {bytes}, at::TensorOptions(at::kByte)));
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

at::Tensor PinnedFor(c10::Device device, const at::Tensor& tensor) {
  return device.is_cpu() ? tensor : tensor.pin_memory();
}

at::Tensor On(c10::Device device, const at::Tensor& tensor) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu());
}

uint64_t Hash(const at::Tensor& tensor) {
  const at::Tensor here = On(at::kCPU, tensor.detach());
  return XXH3_64bits(here.const_data_ptr(), here.nbytes());
}

void ResizeStorage(const at::Tensor& tensor, int64_t bytes) {
  if (tensor.is_cpu()) {
    at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), bytes);
#ifdef MUSTER_CUDA
  } else if (tensor.is_cuda()) {
    at::native::resize_bytes_cuda(tensor.storage().unsafeGetStorageImpl(), bytes);
#endif
  } else {
    at::native::resize_bytes_nocuda(tensor.storage(), bytes);
  }
}

namespace {

// LibTorch before 2.13 has no call that ends release_data_and_set_meta_custom_data_ptr_error_msg_.
// What names a private member in an explicit instantiation may do so.
void EndErrors(c10::StorageImpl& storage);
template <bool c10::StorageImpl::* kThrows>
struct EndsErrors {
  friend void EndErrors(c10::StorageImpl& storage) { storage.*kThrows = false; }
};
template struct EndsErrors<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

// The storage must get its memory next: that updates what LibTorch derives.
template <typename Storage>
void AllowAccess(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    storage.clear_data_ptr_access_error_msg_();
  } else {
    EndErrors(storage);
    storage.get_extra_meta().custom_data_ptr_error_msg_ = std::nullopt;
  }
}

}  // namespace

void Withhold(c10::StorageImpl& storage, const std::string& why) {
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(why);
}

void Give(c10::StorageImpl& storage, const at::Tensor& from) {
  c10::StorageImpl& source = *from.storage().unsafeGetStorageImpl();
  AllowAccess(storage);
  storage.set_nbytes(source.nbytes());
  storage.set_data_ptr_noswap(std::move(source._mutable_data_ptr_no_checks()));
  source.set_nbytes(0);
}

}  // namespace muster::device
