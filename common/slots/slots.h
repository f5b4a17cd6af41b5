// The numbers of the slots of a node (proto/muster/v1/agent_service.proto, AgentHello.gpus), and
// the largest number of slots.
#ifndef MUSTER_COMMON_SLOTS_SLOTS_H_
#define MUSTER_COMMON_SLOTS_SLOTS_H_

#include <cstdint>

namespace muster {

// The number of the first GPU's slot. Slots for jobs on the CPU are numbered from 0; a GPU's slot
// is this number plus the GPU's index on its host.
inline constexpr uint32_t kFirstGpuSlot = 65536;

// The most slots for jobs on the CPU, and the most GPUs, of one node. The coordinator's memory and
// time for a node grow with them, and no host has so many.
inline constexpr uint32_t kMostSlots = 4096;

}  // namespace muster

#endif  // MUSTER_COMMON_SLOTS_SLOTS_H_
