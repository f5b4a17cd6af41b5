// The reports of workers.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_REPORTS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_REPORTS_H_

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"

namespace muster::cluster {

// A gap before its sequence shows that the database was restored: the generation ends.
absl::Status WorkerReported(Turn& turn, PeerStreamId session, const Report& report);
void Handle(Turn& turn, PeerStreamId session, const SpooledReports& spooled);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_REPORTS_H_
