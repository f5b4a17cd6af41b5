// Which checkpoints of a job count. A checkpoint is committed when its row is stored. A complete
// checkpoint is never forgotten unless it is removed: one that does not count any more, and that
// was not dropped for newer ones, is kept and shown.
#ifndef MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
#define MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// INVALID_ARGUMENT unless the path is that of a checkpoint of this step and generation in the job's
// own folder (if job.plan.checkpoint_directory names one).
absl::Status CheckPath(const Job& job, const Checkpoint& checkpoint);

// Records a checkpoint and drops the oldest ones beyond job->plan.keep_checkpoints good ones. The
// newest good one of those that are the best (Checkpoint::best) stays besides. Damaged ones are not
// counted; they are dropped when they are older than all that stay. Dropped ones are added to
// job->dropped_checkpoints. A repeat (same path) changes nothing.
void RecordCheckpoint(Job* job, Checkpoint checkpoint);

// This checkpoint, of any generation, is the best one of the job from now on. False if it is not
// known.
bool MarkBest(Job* job, const std::string& path);

// Adds checkpoints that were found in the folder and continue the training of this job (kAdopted):
// they count. The oldest of those that counted before are dropped as above; the found ones stay
// until the next one is recorded.
void Adopt(Job* job, std::vector<Checkpoint> found);

// Adds a checkpoint that was found in the folder and does not count, unless the job knows it
// already.
void Keep(Job* job, Checkpoint found);

// These directories of the job's folder have been removed.
void Removed(Job* job, const std::vector<std::string>& names);

// Marks a checkpoint as damaged. False if it is not known.
bool MarkBad(Job* job, const std::string& path, const std::string& reason);

// The checkpoints from which a generation may start, newest first, without the damaged ones.
std::vector<Checkpoint> Usable(const Job& job);

// The checkpoints that are known but from which a generation must not start: those that do not
// count, and those that were found damaged. Of a dropped one, whose files are being removed, there
// is only the path.
std::vector<Checkpoint> NotUsable(const Job& job);

// The job continues from this checkpoint: later ones do not count any more. Returns the paths of
// those.
std::vector<std::string> WentOnFrom(Job* job, const std::string& path);

// Somebody decides where the next generation starts: at step 0, or (`from` not empty) from this
// directory; with neither, from the newest checkpoint that counts. After a decision the recorded
// checkpoints do not count any more; they are kept.
void DecideStart(Job* job, bool from_scratch, const std::string& from);

// The checkpoint from which the next generation would continue if job.start_from were revoked
// (TakeBackStart); null if it cannot be revoked.
const Checkpoint* NewestBeforeStart(const Job& job);

// A rank has begun to train from job->start_from: the decision cannot be revoked any more. True if
// this changed anything.
bool SettleStart(Job* job);

// The job cannot start from job->start_from: the checkpoints that counted before that decision
// count again, and the next generation starts from the newest of them. If a rank has begun to train
// from there, or if no checkpoint counted before, the decision stays: returns false and changes
// nothing.
bool TakeBackStart(Job* job);

// ---- Saves that fail: how they are reported, and what is kept in spite of them.

// A save failed, and training continues: job->save_failure counts it. There is an event SAVE_FAILED
// for the first failed save of a row, for each that fails for another reason than the one before,
// and for every tenth.
void OnSaveFailed(Job* job, uint64_t step, const std::string& message, absl::Time now);

// A save succeeded. If the one before had failed, there is an event SAVES_WORK_AGAIN.
void OnSaved(Job* job, uint64_t step, absl::Time now);

// "the last 3 saves failed: ...; the newest checkpoint is of step 40"; empty if the last save did
// not fail.
std::string SaveWarning(const Job& job);

// "kept: the checkpoint of step 40 in /c/a/step-40-g1", or that there is none.
std::string Kept(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
