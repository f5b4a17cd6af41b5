// The memory that this process can still take.
#ifndef MUSTER_WORKER_MEMORY_AVAILABLE_H_
#define MUSTER_WORKER_MEMORY_AVAILABLE_H_

#include <cstdint>
#include <string>

namespace muster::memory {

// The bytes that the machine has available (MemAvailable of /proc/meminfo), or that the limits of
// the process's control group (version 2) and the groups above leave, if fewer. UINT64_MAX if the
// kernel gives no number. `proc` and `cgroups`: other folders in tests.
uint64_t AvailableBytes(const std::string& proc = "/proc",
                        const std::string& cgroups = "/sys/fs/cgroup");

}  // namespace muster::memory

#endif  // MUSTER_WORKER_MEMORY_AVAILABLE_H_
