// Workers that attach, and their heartbeats. Their reports are in reports.h.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_WORKERS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_WORKERS_H_

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"

namespace muster::cluster {

absl::Status AttachWorker(Turn& turn, PeerStreamId session, const WorkerHello& hello);
// True if it renewed the lease.
bool WorkerBeat(Turn& turn, PeerStreamId session, const Heartbeat& heartbeat);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_WORKERS_H_
