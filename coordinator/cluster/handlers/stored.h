// Between the parts and the store: what is loaded at the start, and what has changed since.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_STORED_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_STORED_H_

#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

// Live generations continue: their agents and workers have one whole lease to attach again.
void Load(Turn& turn, const store::Image& image);
// Takes the changes of jobs, nodes and messages for webhooks into the batch, and what follows from
// them into the effects. All other rows are put into the batch by the handlers themselves.
void TakeChanges(Turn& turn);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_STORED_H_
