// The memory of this process as the kernel counts it.
#ifndef MUSTER_WORKER_MEMORY_RESIDENT_H_
#define MUSTER_WORKER_MEMORY_RESIDENT_H_

#include <cstdint>

namespace muster::memory {

// The bytes of this process's pages that are in memory, whichever code allocated them. They include
// libraries, stacks, mapped files, and freed memory that malloc keeps. 0 if the kernel gives no
// number.
uint64_t ResidentBytes();

// Gives the kernel the whole pages of freed memory that malloc keeps. Later allocations pay for
// them with page faults, so call it at the end of a phase whose memory the next phase may not need.
// Threading: any thread; other threads that allocate wait meanwhile.
void ReturnFreedMemory();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_RESIDENT_H_
