// Nodes that jobs leave, and silent nodes: those that count as lost, and those whose return is
// awaited (`when_cut_off: continue`).
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_NODE_LOSS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_NODE_LOSS_H_

#include <functional>
#include <string>

#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/membership/membership.h"

namespace muster::cluster {

// The jobs there save a checkpoint at their next step, end, and continue on other nodes.
void PreemptNode(Turn& turn, const std::string& node, const std::string& reason);
// The node was silent for too long. Its processes end by themselves, except those of jobs with
// `when_cut_off: continue`.
void NodeLost(Turn& turn, const membership::Agent& agent);
// It is back.
void NodeFound(Turn& turn, const std::string& node);
// Ends the streams of the node's processes, except those of jobs that continue.
void EndSessionsOf(Turn& turn, const std::string& node, const std::string& why,
                   const std::function<bool(const std::string& job)>& continues);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_NODE_LOSS_H_
