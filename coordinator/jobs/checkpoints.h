// The checkpoints of a job, and which of them count. A checkpoint is committed when its row is
// stored. A complete checkpoint stays known until it is removed. A checkpoint that does not count
// any more is kept and shown, unless newer checkpoints replaced it.
#ifndef MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
#define MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// Checks the checkpoint's path. INVALID_ARGUMENT unless the path is in the job's own folder and
// names this step and generation. Nothing is checked without job.plan.checkpoint_directory.
absl::Status CheckPath(const Job& job, const Checkpoint& checkpoint);

// Records a checkpoint and drops the oldest good checkpoints beyond job->plan.keep_checkpoints. The
// newest good checkpoint with Checkpoint::best stays in addition. Damaged checkpoints are not
// counted: each is dropped when it is older than all checkpoints that stay. Dropped paths are added
// to job->dropped_checkpoints. A repeat (same path) changes nothing.
void RecordCheckpoint(Job* job, Checkpoint checkpoint);

// Makes this checkpoint, of any generation, the best of the job. False if the checkpoint is not
// known.
bool MarkBest(Job* job, const std::string& path);

// Adds checkpoints (kAdopted) that were found in the folder and continue this job's training. They
// count. The oldest of the former checkpoints are dropped as in RecordCheckpoint. The found
// checkpoints stay at least until the next checkpoint is recorded.
void Adopt(Job* job, std::vector<Checkpoint> found);

// Adds a found checkpoint that does not count, unless the job already knows its path.
void Keep(Job* job, Checkpoint found);

// Records that these directories of the job's folder have been removed.
void Removed(Job* job, const std::vector<std::string>& names);

// Marks a checkpoint as damaged. False if the checkpoint is not known.
bool MarkBad(Job* job, const std::string& path, const std::string& reason);

// Returns the checkpoints from which a generation may start, newest first, without damaged ones.
std::vector<Checkpoint> Usable(const Job& job);

// Returns the known checkpoints from which a generation must not start: checkpoints that do not
// count, and damaged checkpoints. A dropped checkpoint, whose files are being removed, has only a
// path.
std::vector<Checkpoint> NotUsable(const Job& job);

// Records that the job continues from this checkpoint. Later checkpoints do not count any more.
// Returns the paths of the later checkpoints.
std::vector<std::string> WentOnFrom(Job* job, const std::string& path);

// Records a person's decision where the next generation starts: at step 0, or from the directory
// `from`, if it is not empty. With neither, it starts from the newest checkpoint that counts. After
// a decision the recorded checkpoints do not count any more, and are kept.
void DecideStart(Job* job, bool from_scratch, const std::string& from);

// Returns the checkpoint from which the next generation would start if job.start_from were revoked
// (TakeBackStart); null if it cannot be revoked.
const Checkpoint* NewestBeforeStart(const Job& job);

// Makes job->start_from final, because a rank has begun to train from there. True if this changed
// anything.
bool SettleStart(Job* job);

// Revokes job->start_from, because the job cannot start from there. The checkpoints that counted
// before that decision count again, and the next generation starts from the newest of them. Returns
// false and changes nothing if a rank has begun to train from there, or if no checkpoint counted
// before.
bool TakeBackStart(Job* job);

// ---- Saves that fail: how they are reported, and what is kept in spite of them.

// Records a failed save in job->save_failure; training continues. Adds an event SAVE_FAILED for the
// first failed save of a row, for each new reason, and for every tenth failed save.
void OnSaveFailed(Job* job, uint64_t step, const std::string& message, absl::Time now);

// Records a successful save. Adds an event SAVES_WORK_AGAIN if the save before had failed.
void OnSaved(Job* job, uint64_t step, absl::Time now);

// Returns a warning: "the last 3 saves failed: ...; the newest checkpoint is of step 40". Empty if
// the last save did not fail.
std::string SaveWarning(const Job& job);

// Returns "kept: the checkpoint of step 40 in /c/a/step-40-g1", or says that there is none.
std::string Kept(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CHECKPOINTS_H_
