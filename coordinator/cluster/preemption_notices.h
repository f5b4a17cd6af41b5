// The notices by which jobs leave a node, made without any change of the cluster's state: they can
// be sent while the store cannot be written. Pure.
#ifndef MUSTER_COORDINATOR_CLUSTER_PREEMPTION_NOTICES_H_
#define MUSTER_COORDINATOR_CLUSTER_PREEMPTION_NOTICES_H_

#include <string>
#include <vector>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/effect.h"

namespace muster::cluster {

enum class StoreState {
  // The cluster's own decision about the jobs (LeaveNode) follows at once.
  kWorks,
  // Nothing else can be decided, so that jobs which begin to train, or for which a stop waits, get
  // the notice, too.
  kInTrouble,
};

// For all workers of each job with ranks on this node: save a checkpoint at the next step, and end.
// Jobs of workers that do not know the notice get none. A repeated notice has no effect.
std::vector<SendToWorker> PreemptionNotices(const Cluster& cluster, const std::string& node,
                                            const std::string& reason, StoreState store);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_PREEMPTION_NOTICES_H_
