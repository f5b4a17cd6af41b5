// Counts the memory that LibTorch's caching allocator hands out on GPUs, by purpose
// (memory_scope.h), as counting_allocator.h does for the CPU. A worker that is built without
// --config=cuda has no GPU, and the functions do nothing.
#ifndef MUSTER_WORKER_MEMORY_DEVICE_MEMORY_H_
#define MUSTER_WORKER_MEMORY_DEVICE_MEMORY_H_

#include <cstdint>

#include "worker/memory/counters.h"

namespace muster::memory {

struct DeviceMemory {
  // The requested bytes that are not freed.
  Usage in_use;
  // The bytes that the caching allocator has taken from the GPU, including memory that it keeps for
  // later.
  uint64_t reserved_bytes = 0;
};

// Starts to count. Must be called once, before the first allocation on a GPU, in the thread of the
// session. Allocations of other threads outside of all scopes count as activations, because
// autograd runs the backward of a GPU in a thread of its own.
void CountDeviceMemory();

// The memory in use since CountDeviceMemory; zeros without that call. Any thread.
DeviceMemory DeviceMemoryInUse();

// The bytes that this process can still allocate on the current GPU: the free memory there, and the
// memory that the caching allocator keeps for later. UINT64_MAX: not known.
uint64_t AvailableDeviceBytes();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_DEVICE_MEMORY_H_
