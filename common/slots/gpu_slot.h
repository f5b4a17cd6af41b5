// How the slots of a node are numbered (proto/muster/v1/agent_service.proto, AgentHello.gpus).
#ifndef MUSTER_COMMON_SLOTS_GPU_SLOT_H_
#define MUSTER_COMMON_SLOTS_GPU_SLOT_H_

#include <cstdint>

namespace muster {

// The slots for jobs on the CPU are numbered from 0; the slot of a GPU is this number plus the
// GPU's index on its host.
inline constexpr uint32_t kFirstGpuSlot = 65536;

}  // namespace muster

#endif  // MUSTER_COMMON_SLOTS_GPU_SLOT_H_
