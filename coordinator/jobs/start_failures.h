// Starts of a job that fail because a worker's process cannot be started, or ends before its first
// message: a library is missing, there is no memory, it exits at once. Or because the worker says
// that its node cannot take it: the node does not have its address, or too few files may be open.
// Such a start costs no restart. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_START_FAILURES_H_
#define MUSTER_COORDINATOR_JOBS_START_FAILURES_H_

#include <cstdint>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// After so many such starts in a row the job fails where no other node has room for it; after a
// worker has said that its node cannot take it, at once.
inline constexpr uint32_t kMostStartFailures = 3;

// The job waits for its next start, and another start on the same node would be in vain.
bool HasStartedInVain(const Job& job);

// It fails, because no node that may do better has room for it. The reason code is that of the
// start: kWorkerDidNotStart or NODE_FAULT.
void FailToStart(Job* job, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_START_FAILURES_H_
