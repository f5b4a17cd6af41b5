// Saves that fail: how they are reported, and what is kept in spite of them.
#ifndef MUSTER_COORDINATOR_JOBS_SAVES_H_
#define MUSTER_COORDINATOR_JOBS_SAVES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

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

#endif  // MUSTER_COORDINATOR_JOBS_SAVES_H_
