// Counts the memory that LibTorch's CPU allocator allocates, by the purpose that the allocating
// thread has set (memory_scope.h). Freed memory is subtracted from the purpose under which it was
// allocated, whichever thread frees it.
//
// The counters are the process's: ranks that are threads of one process share them. Counted are the
// bytes asked for. Not counted is memory that does not come from this allocator
// (docs/reference/memory.md).
//
// Cost: 64 bytes in front of each allocation, and four uncontended atomic operations per allocation
// with its release.
#ifndef MUSTER_WORKER_MEMORY_COUNTING_ALLOCATOR_H_
#define MUSTER_WORKER_MEMORY_COUNTING_ALLOCATOR_H_

#include "worker/memory/counters.h"

namespace muster::memory {

// Replaces LibTorch's CPU allocator by one that counts and calls the former one; it stays until the
// process ends. Call it while no other thread uses LibTorch: at the start of main. Memory that was
// allocated before is never counted, and is freed as before. Calls after the first do nothing.
void InstallCountingAllocator();

// Since InstallCountingAllocator; zeros without it.
Usage MemoryInUse();

// Counters::ResetPeaks.
void ResetPeaks();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_COUNTING_ALLOCATOR_H_
