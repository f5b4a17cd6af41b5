// How much one node may offer.
#ifndef MUSTER_COMMON_SLOTS_MOST_SLOTS_H_
#define MUSTER_COMMON_SLOTS_MOST_SLOTS_H_

#include <cstdint>

namespace muster {

// Slots for jobs on the CPU, and GPUs, of one node. The coordinator's memory and time for a node
// grow with them, and no host has so many.
inline constexpr uint32_t kMostSlots = 4096;

}  // namespace muster

#endif  // MUSTER_COMMON_SLOTS_MOST_SLOTS_H_
