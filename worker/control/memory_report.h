// The memory of this process, as a heartbeat reports it (docs/memory.md).
#ifndef MUSTER_WORKER_CONTROL_MEMORY_REPORT_H_
#define MUSTER_WORKER_CONTROL_MEMORY_REPORT_H_

#include <cstdint>

#include "proto/muster/v1/job.pb.h"
#include "worker/memory/counters.h"

namespace muster::control {

v1::RankMemory MemoryReport(const memory::Usage& usage, uint64_t resident_bytes);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_MEMORY_REPORT_H_
