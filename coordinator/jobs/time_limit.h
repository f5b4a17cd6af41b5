// How long a job may still run (`time_limit`). Time counts while a generation of the attempt lives,
// not while the job waits for slots. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_TIME_LIMIT_H_
#define MUSTER_COORDINATOR_JOBS_TIME_LIMIT_H_

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// What is left of the job's limit; infinite without a limit, never negative.
absl::Duration TimeLeft(const JobFields& job, absl::Time now);

// When a live job will have used up its limit if its generation continues; the infinite future
// without a limit, or if the job is not live.
absl::Time TimeLimitEnd(const JobFields& job);

// To be called when a live generation has ended.
void StopClock(JobFields* job, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_TIME_LIMIT_H_
