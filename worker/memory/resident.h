// The memory of this process as the kernel sees it.
#ifndef MUSTER_WORKER_MEMORY_RESIDENT_H_
#define MUSTER_WORKER_MEMORY_RESIDENT_H_

#include <cstdint>

namespace muster::memory {

// Pages of this process that are in memory, whichever code allocated them: also libraries, stacks,
// mapped files, and what malloc keeps of freed memory. 0 if the kernel gives no number.
uint64_t ResidentBytes();

// Gives the kernel the whole pages that malloc keeps of freed memory. What is allocated later pays
// for them with page faults, so this is for the end of a phase whose memory the next one may not
// need. Threading: any thread; other threads that allocate wait meanwhile.
void ReturnFreedMemory();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_RESIDENT_H_
