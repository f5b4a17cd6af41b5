// Jobs that leave a node.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_PREEMPTION_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_PREEMPTION_H_

#include <functional>
#include <string>

#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"

namespace muster::cluster {

// The jobs there save a checkpoint at their next step, end, and continue on other nodes.
void PreemptNode(Turn& turn, const std::string& node, const std::string& reason);
// Applies `change` to each job that may have processes there, and carries out what follows from
// it.
void EachJobOn(Turn& turn, const std::string& node,
               const std::function<jobs::Ended(jobs::Job*)>& change);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_PREEMPTION_H_
