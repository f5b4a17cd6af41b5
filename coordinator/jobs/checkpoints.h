// Which checkpoints of a job count. A row here is the commit of a checkpoint (architecture 6).
// Nothing that is whole is ever forgotten but by removal: what does not count any more, and was not
// dropped for newer ones, is kept and shown.
#ifndef MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
#define MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// INVALID_ARGUMENT unless the path is that of a checkpoint of this step and generation in the job's
// own folder, where it is known (job.plan.checkpoint_directory).
absl::Status CheckPath(const Job& job, const Checkpoint& checkpoint);

// Records one and drops those beyond job->plan.keep_checkpoints good ones (the oldest first;
// damaged ones do not count, and go once they are older than all that stay). What is dropped goes
// to job->dropped_checkpoints. A repeat (same path) changes nothing.
void RecordCheckpoint(Job* job, Checkpoint checkpoint);

// Ones that were found in the folder and continue the job's course (kAdopted): they count. Of those
// that counted before the oldest are dropped as above; those that were found stay until the next
// one is recorded.
void Adopt(Job* job, std::vector<Checkpoint> found);

// One that was found in the folder and does not count, unless it is known otherwise.
void Keep(Job* job, Checkpoint found);

// These directories of the job's folder are gone.
void Removed(Job* job, const std::vector<std::string>& names);

// False when it is not known.
bool MarkBad(Job* job, const std::string& path, const std::string& reason);

// What a generation may start from, newest first, without the damaged.
std::vector<Checkpoint> Usable(const Job& job);

// What a generation must not take for unknown, because it is known not to count, and what was found
// damaged.
std::vector<Checkpoint> NotUsable(const Job& job);

// The job goes on from this checkpoint: later ones do not count any more. The paths of these.
std::vector<std::string> WentOnFrom(Job* job, const std::string& path);

// Somebody decides where the next generation starts: at step 0, or (`from` not empty) from this
// directory; with neither, from the newest checkpoint that counts. What was recorded does not count
// any more then, and is kept.
void DecideStart(Job* job, bool from_scratch, const std::string& from);

// What the next generation would go on from if job.start_from were taken back (TakeBackStart); null
// where it cannot be.
const Checkpoint* NewestBeforeStart(const Job& job);

// A rank has begun to train from job->start_from: the decision stands. True where that changed
// anything.
bool SettleStart(Job* job);

// The job cannot start from job->start_from: what counted before that decision counts again, and
// the next generation starts from the newest of it. False, and nothing changes, where a rank has
// begun to train from there, or where nothing counted before: then the decision stands.
bool TakeBackStart(Job* job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
