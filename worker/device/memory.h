// The memory of tensors: copies, zeros, hashes and sizes of storage, in bytes, on the tensor's
// device. The folders above (models, optim, parallel, train) touch memory of tensors only through
// this library and through operations of LibTorch; tests/layering checks this rule.
//
// All tensors are contiguous. Autograd sees nothing of these functions: there is no graph, and no
// version counter changes. Threading: as for the tensors themselves.
//
// A call on CPU tensors has ended when it returns. On another device, it is ordered in the current
// stream, and the host does not wait, except as the functions say.
#ifndef MUSTER_WORKER_DEVICE_MEMORY_H_
#define MUSTER_WORKER_DEVICE_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::device {

// Copies `bytes` bytes from byte `from_begin` of `from` to byte `to_begin` of `to`. The tensors may
// have any types. Either both are on one device, and the two ranges are equal or do not overlap. Or
// one tensor is on the CPU; the host does not wait for a tensor from HostLike.
void CopyBytes(const at::Tensor& to, int64_t to_begin, const at::Tensor& from, int64_t from_begin,
               int64_t bytes);

// Copies `bytes` bytes of this process's memory to byte `begin` of `to`. The memory may be changed
// when the call returns.
void CopyFromHost(const at::Tensor& to, int64_t begin, const void* from, int64_t bytes);

// Copies all bytes of `from` to the beginning of `to`.
void CopyAll(const at::Tensor& to, const at::Tensor& from);

// Sets the bytes [begin, end) to zero.
void ZeroBytes(const at::Tensor& tensor, int64_t begin, int64_t end);

// Returns a tensor in host memory with the tensor's shape and type, without values. The memory is
// pinned, unless the tensor is on the CPU.
at::Tensor HostLike(const at::Tensor& tensor);

// Returns the tensor itself if the device is the CPU, otherwise a copy in pinned memory. Copies
// from pinned memory to the device do not make the host wait. The tensor must be on the CPU.
at::Tensor PinnedFor(c10::Device device, const at::Tensor& tensor);

// Returns the tensor itself if it is on this device, otherwise a copy there. The host waits, unless
// the tensor is in pinned memory; a copy to the CPU is complete when the call returns.
at::Tensor On(c10::Device device, const at::Tensor& tensor);

// Returns a number for each tensor that depends on all its bytes: int64 [tensors], on `device`,
// where the tensors are. Ranks compare the numbers if their tensors are on the same kind of device.
// The CPU's number is XXH3 with 64 bits (https://github.com/Cyan4973/xxHash). On other devices it
// is a weighted sum modulo 2^64, which needs 32 MB of the device's memory, and the host does not
// wait.
at::Tensor Hashes(c10::Device device, const std::vector<at::Tensor>& tensors);

// Gives the tensor's storage memory of this size, without values; 0 frees the memory. The tensor
// must be alone in its storage, or be a view from the storage's beginning.
void ResizeStorage(const at::Tensor& tensor, int64_t bytes);

// Frees the memory of a storage on the CPU. The storage keeps its size. Later requests for the
// address of its memory get a c10::Error with this text.
void Withhold(c10::StorageImpl& storage, const std::string& why);

// Ends Withhold: gives the storage the memory of the storage of `from`. `from` is on the CPU,
// begins at the beginning of its storage, and is left without memory.
void Give(c10::StorageImpl& storage, const at::Tensor& from);

// Ends Withhold or Give: the storage has no memory, and its size is 0.
void GiveNothing(c10::StorageImpl& storage);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_MEMORY_H_
