#include "coordinator/jobs/time_limit.h"

#include <algorithm>

namespace muster::jobs {

absl::Duration TimeLeft(const JobFields& job, absl::Time now) {
  absl::Duration used = job.time_used;
  if (job.live()) used += std::max(now - job.alive()->since, absl::ZeroDuration());
  return std::max(job.plan.time_limit - used, absl::ZeroDuration());
}

absl::Time TimeLimitEnd(const JobFields& job) {
  if (!job.live() || job.plan.time_limit == absl::InfiniteDuration()) return absl::InfiniteFuture();
  return job.alive()->since + (job.plan.time_limit - job.time_used);
}

void StopClock(JobFields* job, absl::Time now) {
  job->time_used += std::max(now - job->alive()->since, absl::ZeroDuration());
}

}  // namespace muster::jobs
