// What agents say, and the ends of the streams of agents and workers. What an agent says counts
// only for processes that may be on its node (Jobs::MayBeOn); the rest is ignored, and logged once
// for each stream. It is acknowledged nevertheless.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_AGENTS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_AGENTS_H_

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"

namespace muster::cluster {

absl::Status AttachAgent(Turn& turn, PeerStreamId session, const AgentHello& hello);
// A heartbeat. True if it renewed the lease.
bool AgentHeard(Turn& turn, PeerStreamId session);
// Whether this agent may speak of the process. If not, this is logged once.
bool SpeaksFor(Turn& turn, PeerStreamId session, const WorkerId& worker);
void Handle(Turn& turn, PeerStreamId session, const RunningWorker& worker);
void Handle(Turn& turn, PeerStreamId session, const WorkerExit& exit);
void Handle(Turn& turn, PeerStreamId session, const LogLines& log);
void Handle(Turn& turn, PeerStreamId session, const AgentStops& stops);
void Handle(Turn& turn, PeerStreamId session, const SlotQuarantine& quarantine);
// The stream of an agent or of a worker broke. Unknown streams are ignored.
void Detached(Turn& turn, PeerStreamId session);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_AGENTS_H_
