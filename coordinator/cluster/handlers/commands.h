// How a command gets into the log of its job.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_COMMANDS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_COMMANDS_H_

#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// Adds a command to the job's log, and tells it to the workers.
void Append(Turn& turn, jobs::Job* job, commands::Command command);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_COMMANDS_H_
