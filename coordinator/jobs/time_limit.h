// How long a job may still run (`time_limit`). Time counts while a generation of the attempt lives,
// not while the job waits for slots. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_TIME_LIMIT_H_
#define MUSTER_COORDINATOR_JOBS_TIME_LIMIT_H_

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// Of its limit; infinite without one, never negative.
absl::Duration TimeLeft(const JobFields& job, absl::Time now);

// When a job that lives has used up its limit, if it goes on so; the infinite future without one,
// or where it does not live.
absl::Time TimeLimitEnd(const JobFields& job);

// A generation starts, or is over.
void StartClock(JobFields* job, absl::Time now);
void StopClock(JobFields* job, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_TIME_LIMIT_H_
