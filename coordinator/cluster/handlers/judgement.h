// What the ends of generations, and their progress, show about nodes.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_JUDGEMENT_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_JUDGEMENT_H_

#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// Records what the end of the newest generation shows about its nodes, once per generation.
void JudgeNodes(Turn& turn, jobs::Job* job);
// The job made progress: its nodes are in order.
void NodesWork(Turn& turn, const jobs::Job& job);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_JUDGEMENT_H_
