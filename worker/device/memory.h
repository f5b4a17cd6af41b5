// The memory of tensors: copies, zeros, hashes and sizes of storage, in bytes, on the device where
// the tensor is. The folders above (models, optim, parallel, train) touch no memory of tensors
// except through this library and through operations of LibTorch; tests/layering checks it.
//
// All tensors are contiguous. Nothing here is seen by autograd: there is no graph, and no version
// counter changes. Threading: as for the tensors themselves.
//
// On a CPU a call has ended when it returns. On another device it is ordered in the current stream,
// and the host does not wait, except in Hash.
#ifndef MUSTER_WORKER_DEVICE_MEMORY_H_
#define MUSTER_WORKER_DEVICE_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::device {

// Copies `bytes` bytes from byte `from_begin` of `from` to byte `to_begin` of `to`. The tensors may
// have any types. They are on the same device, and the two ranges do not overlap, unless they are
// the same; or one tensor is on the CPU: if it is one of HostLike, the host does not wait.
void CopyBytes(const at::Tensor& to, int64_t to_begin, const at::Tensor& from, int64_t from_begin,
               int64_t bytes);

// Copies `bytes` bytes of this process's memory to byte `begin` of `to`. They may be changed when
// the call returns.
void CopyFromHost(const at::Tensor& to, int64_t begin, const void* from, int64_t bytes);

// Copies all bytes of `from` to the begin of `to`.
void CopyAll(const at::Tensor& to, const at::Tensor& from);

// Sets the bytes from `begin` to before `end` to zero.
void ZeroBytes(const at::Tensor& tensor, int64_t begin, int64_t end);

// A tensor in host memory with the tensor's shape and type, without values: pinned memory, unless
// the tensor is on the CPU.
at::Tensor HostLike(const at::Tensor& tensor);

// The tensor itself if the device is the CPU, otherwise a copy of it in pinned memory, from which
// copies to the device do not hold the host up. The tensor is on the CPU.
at::Tensor PinnedFor(c10::Device device, const at::Tensor& tensor);

// The tensor itself if it is on this device, otherwise a copy there. The host waits, unless the
// tensor is in pinned memory; a copy to the CPU is complete when the call returns.
at::Tensor On(c10::Device device, const at::Tensor& tensor);

// A number for each tensor that depends on all of its bytes, for comparisons between ranks whose
// tensors are on the same kind of device: int64 [tensors], on `device`, where the tensors are. On
// the CPU it is XXH3 with 64 bits (https://github.com/Cyan4973/xxHash); elsewhere a weighted sum
// modulo 2^64, which is computed there, with 32 MB of its memory, and which the host does not wait
// for.
at::Tensor Hashes(c10::Device device, const std::vector<at::Tensor>& tensors);

// Gives the tensor's storage memory of this size, without values; 0 frees it. The tensor must be
// alone in its storage, or a view from its begin.
void ResizeStorage(const at::Tensor& tensor, int64_t bytes);

// Frees the memory of a storage on the CPU. The storage keeps its size. From then on, whoever asks
// for the address of its memory gets a c10::Error with this text.
void Withhold(c10::StorageImpl& storage, const std::string& why);

// Ends Withhold: gives the storage the memory of the storage of `from`, which is on the CPU, begins
// there, and is left without memory.
void Give(c10::StorageImpl& storage, const at::Tensor& from);

// Ends Withhold or Give: the storage has no memory, and its size is 0.
void GiveNothing(c10::StorageImpl& storage);

}  // namespace muster::device

#endif  // MUSTER_WORKER_DEVICE_MEMORY_H_
