// N ranks as threads of one process: a Communicator with real sums and no network.
//
// auto ranks = LocalGroup::Create(3);   // ranks[r] goes to the thread of rank r
//
// Destroying the communicator of a rank early means the death of the rank. The operations in which
// the dead rank did not take part fail on the other ranks with UNAVAILABLE, which names the dead
// rank. Ranks that issue different operations get FAILED_PRECONDITION.
#ifndef MUSTER_WORKER_COMM_LOCAL_LOCAL_GROUP_H_
#define MUSTER_WORKER_COMM_LOCAL_LOCAL_GROUP_H_

#include <memory>
#include <vector>

#include "worker/comm/communicator.h"

namespace muster::comm {

struct LocalGroup {
  // Returns one communicator per rank, in rank order. world_size >= 1.
  static std::vector<std::unique_ptr<Communicator>> Create(int world_size);
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_LOCAL_LOCAL_GROUP_H_
