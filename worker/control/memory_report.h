// The memory of this process, as a heartbeat reports it (docs/memory.md).
#ifndef MUSTER_WORKER_CONTROL_MEMORY_REPORT_H_
#define MUSTER_WORKER_CONTROL_MEMORY_REPORT_H_

#include <cstdint>

#include "proto/muster/v1/job.pb.h"
#include "worker/memory/counters.h"

namespace muster::control {

// usage: of the job's device. reserved_bytes: of a GPU; 0 on the CPU.
v1::RankMemory MemoryReport(const memory::Usage& usage, uint64_t resident_bytes,
                            uint64_t reserved_bytes = 0);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_MEMORY_REPORT_H_
