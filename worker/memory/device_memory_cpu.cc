// The build without --config=cuda.
#include <limits>

#include "worker/memory/device_memory.h"

namespace muster::memory {

void CountDeviceMemory() {}
DeviceMemory DeviceMemoryInUse() { return {}; }
uint64_t AvailableDeviceBytes() { return std::numeric_limits<uint64_t>::max(); }

}  // namespace muster::memory
