// Counts the memory that LibTorch's CPU allocator allocates, by the purpose that the allocating
// thread has set (memory_scope.h). Freed memory is subtracted from the purpose of its allocation,
// whichever thread frees it.
//
// The counters belong to the process: ranks that are threads of one process share them. They count
// the requested bytes. They do not count memory from other allocators (docs/reference/memory.md).
//
// Cost: 64 bytes in front of each allocation, and four uncontended atomic operations for an
// allocation and its release.
#ifndef MUSTER_WORKER_MEMORY_COUNTING_ALLOCATOR_H_
#define MUSTER_WORKER_MEMORY_COUNTING_ALLOCATOR_H_

#include "worker/memory/counters.h"

namespace muster::memory {

// Replaces LibTorch's CPU allocator by an allocator that counts and calls the original. The new
// allocator stays until the process ends. Call this function while no other thread uses LibTorch:
// at the start of main. Earlier allocations are never counted, and are freed as before. Later calls
// do nothing.
void InstallCountingAllocator();

// The memory in use since InstallCountingAllocator; zeros without that call.
Usage MemoryInUse();

// Calls Counters::ResetPeaks.
void ResetPeaks();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_COUNTING_ALLOCATOR_H_
