// Reports about a job's checkpoint folder: checkpoints that are written, found or removed there,
// and the checkpoint from which a generation starts. Only rank 0 speaks for the folder.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_CHECKPOINTS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_CHECKPOINTS_H_

#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

void RecordCheckpoint(Turn& turn, jobs::Job* job, const CheckpointWritten& written);
void TakeFound(Turn& turn, jobs::Job* job, const CheckpointsFound& report);
void TakeStart(Turn& turn, jobs::Job* job, const SessionStarted& started);
// Tells rank 0 which checkpoints to remove.
void TellToRemove(Turn& turn, const jobs::Job& job);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_CHECKPOINTS_H_
