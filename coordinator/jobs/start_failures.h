// Starts of a job that fail because a worker's process cannot be started, or ends before its first
// message: a library is missing, there is no memory, it exits at once. Such a start costs no
// restart as long as another node may start the job. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_START_FAILURES_H_
#define MUSTER_COORDINATOR_JOBS_START_FAILURES_H_

#include <cstdint>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// After so many such starts in a row the job fails where no other node has room for it.
inline constexpr uint32_t kMostStartFailures = 3;

// The job waits for its next start, and has failed to start so often that it should fail.
bool HasStartedInVain(const Job& job);

// It fails (reason code kWorkerDidNotStart), because no node that may do better has room for it.
void FailToStart(Job* job, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_START_FAILURES_H_
