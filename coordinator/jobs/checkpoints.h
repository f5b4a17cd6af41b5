// Which checkpoints of a job count. A row here is the commit of a checkpoint (architecture 6).
#ifndef MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
#define MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_

#include <string>
#include <vector>

#include "coordinator/jobs/job.h"

namespace muster::jobs {

// Records one and drops those beyond job->plan.keep_checkpoints good ones (the oldest first;
// damaged ones do not count, and go once they are older than all that stay). A repeat (same path)
// changes nothing. The result: the paths dropped now, whose files may be deleted.
std::vector<std::string> RecordCheckpoint(Job* job, Checkpoint checkpoint);

// False when it is not known.
bool MarkBad(Job* job, const std::string& path, const std::string& reason);

// What a generation may start from, newest first, without the damaged.
std::vector<Checkpoint> Usable(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
