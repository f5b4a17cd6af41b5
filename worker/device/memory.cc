#include "worker/device/memory.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ATen/native/Resize.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/zeros.h"
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

// The number of elements of a tensor that are summed at once.
constexpr int64_t kSummed = 1 << 20;

// A short form of the finalizer of splitmix64 (https://prng.di.unimi.it/splitmix64.c): odd numbers
// whose bits look random.
uint64_t Factor(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  return (z ^ (z >> 27)) | 1;
}

at::Tensor Factors(c10::Device device) {
  const at::Tensor factors = at::empty({kSummed}, at::kLong);
  int64_t* const values = factors.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < kSummed; ++i) values[i] = static_cast<int64_t>(Factor(i));
  return On(device, factors);
}

// Adds the hash of a contiguous tensor that is not on the CPU.
void AddHash(const at::Tensor& tensor, const at::Tensor& factors, const at::Tensor& hash) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  const int64_t begin = tensor.storage_offset() * tensor.element_size();
  const bool in_words = bytes % 4 == 0 && begin % 4 == 0;
  const at::Tensor numbers = BytesOf(tensor, 0, bytes).view(in_words ? at::kInt : at::kByte);
  const int64_t count = numbers.numel();
  for (int64_t done = 0; done < count; done += kSummed) {
    const int64_t next = std::min(kSummed, count - done);
    const at::Tensor sum = numbers.narrow(0, done, next).mul(factors.narrow(0, 0, next)).sum();
    hash.add_(sum, static_cast<int64_t>(Factor(done / kSummed)));
  }
}

}  // namespace

void CopyBytes(const at::Tensor& to, int64_t to_begin, const at::Tensor& from, int64_t from_begin,
               int64_t bytes) {
  if (bytes == 0) return;
  // The copy avoids the cost of a dispatch, because models have hundreds of small parameters.
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

at::Tensor Hashes(c10::Device device, const std::vector<at::Tensor>& tensors) {
  const c10::NoGradGuard no_grad;
  const at::Tensor hashes = at::zeros({static_cast<int64_t>(tensors.size())},
                                      at::TensorOptions(at::kLong).device(device));
  const at::Tensor factors = device.is_cpu() ? at::Tensor() : Factors(device);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = tensors[i].detach().contiguous();
    if (device.is_cpu()) {
      hashes.mutable_data_ptr<int64_t>()[i] =
          static_cast<int64_t>(XXH3_64bits(tensor.const_data_ptr(), tensor.nbytes()));
    } else {
      AddHash(tensor, factors, hashes[static_cast<int64_t>(i)]);
    }
  }
  return hashes;
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

// Ends the effect of release_data_and_set_meta_custom_data_ptr_error_msg_, for which LibTorch
// before 2.13 has no call. The flag is private, but an explicit instantiation may name private
// members.
void EndErrors(c10::StorageImpl& storage);
template <bool c10::StorageImpl::* kThrows>
struct EndsErrors {
  friend void EndErrors(c10::StorageImpl& storage) { storage.*kThrows = false; }
};
template struct EndsErrors<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

// Allows access to the memory. The storage must get its memory next, which updates the state that
// LibTorch derives.
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

void GiveNothing(c10::StorageImpl& storage) {
  AllowAccess(storage);
  storage.set_nbytes(0);
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
}

}  // namespace muster::device
