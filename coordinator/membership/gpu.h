// A GPU that an agent found on its host.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_GPU_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_GPU_H_

#include <cstdint>
#include <string>

namespace muster::membership {

struct Gpu {
  uint32_t index = 0;  // on its host
  std::string uuid;
  std::string name;
  uint64_t memory_bytes = 0;

  bool operator==(const Gpu&) const = default;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_GPU_H_
