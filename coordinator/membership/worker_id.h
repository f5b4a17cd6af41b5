// The identity of a worker's process: one rank of one generation of one job. The incarnation is
// unique to the process.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_WORKER_ID_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_WORKER_ID_H_

#include <cstdint>
#include <string>

namespace muster::membership {

struct WorkerId {
  std::string job;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string incarnation;

  bool operator==(const WorkerId&) const = default;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_WORKER_ID_H_
