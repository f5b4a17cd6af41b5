// Signs that the database was restored from an older copy: processes know more than it.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_LATER_STATE_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_LATER_STATE_H_

#include <cstdint>
#include <string>

#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// A process knows of acknowledged reports or commands that this (restored) database does not
// have: its generation cannot continue. That is not a failure of the job.
void FollowsALaterState(Turn& turn, jobs::Job* job, const std::string& what);
// The same, because this rank's reports up to `newest` were acknowledged and are missing here.
void MissesReports(Turn& turn, jobs::Job* job, uint32_t rank, uint64_t newest);
// A process of a later generation than the job's shows that the database was restored: the
// running generation ends, and the next one is above it. `what` says what happened to the
// process, for the log.
void NewerGenerationFound(Turn& turn, jobs::Job* job, uint64_t generation, const std::string& what);
// If processes of later generations than their job's run on this node, tells them to end; the
// job's next generation is above them.
void EndLaterProcesses(Turn& turn, const AgentHello& hello);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_LATER_STATE_H_
