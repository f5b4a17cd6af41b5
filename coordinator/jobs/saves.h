// Saves that fail: what is told of them, and what is kept all the same.
#ifndef MUSTER_COORDINATOR_JOBS_SAVES_H_
#define MUSTER_COORDINATOR_JOBS_SAVES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// A save failed, and training goes on: job->save_failure counts it. An event SAVE_FAILED tells of
// the first one, of each that fails in another way than the one before it, and of every tenth in a
// row.
void OnSaveFailed(Job* job, uint64_t step, const std::string& message, absl::Time now);

// A save did not fail: an event SAVES_WORK_AGAIN tells it, where the one before did.
void OnSaved(Job* job, uint64_t step, absl::Time now);

// "the last 3 saves failed: ...; the newest checkpoint is of step 40"; empty where the last save
// did not fail.
std::string SaveWarning(const Job& job);

// "kept: the checkpoint of step 40 in /c/a/step-40-g1", or that there is none.
std::string Kept(const Job& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_SAVES_H_
