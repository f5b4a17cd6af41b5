// How much memory this process has, as the kernel sees it, and can still take.
#ifndef MUSTER_WORKER_MEMORY_AVAILABLE_H_
#define MUSTER_WORKER_MEMORY_AVAILABLE_H_

#include <cstdint>
#include <string>

namespace muster::memory {

// In bytes: what the machine has available (MemAvailable of /proc/meminfo), or less if a limit of
// the process's control group (version 2) or of a group above it leaves less. UINT64_MAX if the
// kernel says nothing. `proc` and `cgroups`: other folders in tests.
uint64_t AvailableBytes(const std::string& proc = "/proc",
                        const std::string& cgroups = "/sys/fs/cgroup");

// Pages of this process that are in memory, whichever code allocated them: also libraries, stacks,
// mapped files, and what malloc keeps of freed memory. 0 if the kernel gives no number.
uint64_t ResidentBytes();

// Gives the kernel the whole pages that malloc keeps of freed memory. What is allocated later pays
// for them with page faults, so this is for the end of a phase whose memory the next one may not
// need. Threading: any thread; other threads that allocate wait meanwhile.
void ReturnFreedMemory();

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_AVAILABLE_H_
