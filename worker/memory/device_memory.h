// Counts the memory that LibTorch's caching allocator hands out on GPUs, by purpose
// (memory_scope.h), as counting_allocator.h does it for the CPU. A worker that is built without
// --config=cuda has no GPU, and the functions do nothing.
#ifndef MUSTER_WORKER_MEMORY_DEVICE_MEMORY_H_
#define MUSTER_WORKER_MEMORY_DEVICE_MEMORY_H_

#include <cstdint>

#include "worker/memory/counters.h"

namespace muster::memory {

struct DeviceMemory {
  // Bytes that were asked for and not freed.
  Usage in_use;
  // What the caching allocator has taken from the GPU: also memory that it keeps for later.
  uint64_t reserved_bytes = 0;
};

// Counts from now on. Called once, before the first allocation on a GPU, in the thread of the
// session. What other threads allocate outside of all scopes counts as activations: that is
// autograd, which runs the backward of a GPU in a thread of its own.
void CountDeviceMemory();

// Since then; zeros without it. Any thread.
DeviceMemory DeviceMemoryInUse();

// What this process can still allocate on the current GPU, in bytes: what is free there, and what
// the caching allocator keeps for later. UINT64_MAX: not known.
uint64_t AvailableDeviceBytes();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_DEVICE_MEMORY_H_
