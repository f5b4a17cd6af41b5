// N ranks as threads of one process: a Communicator with real sums and no network.
//
// auto ranks = LocalGroup::Create(3);   // ranks[r] goes to the thread of rank r
// A rank that is destroyed while others still run operations counts as dead: their operations in
// which it did not take part fail with UNAVAILABLE, naming it. Ranks that issue different
// operations get FAILED_PRECONDITION.
#ifndef MUSTER_WORKER_COMM_LOCAL_LOCAL_GROUP_H_
#define MUSTER_WORKER_COMM_LOCAL_LOCAL_GROUP_H_

#include <memory>
#include <vector>

#include "worker/comm/communicator.h"

namespace muster::comm {

struct LocalGroup {
  // One communicator per rank, in rank order. world_size >= 1.
  static std::vector<std::unique_ptr<Communicator>> Create(int world_size);
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_LOCAL_LOCAL_GROUP_H_
