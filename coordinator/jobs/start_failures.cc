#include "coordinator/jobs/start_failures.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/failure.h"

namespace muster::jobs {

bool HasStartedInVain(const Job& job) {
  if (!job.waiting()) return false;
  const std::optional<Failure> failure = OwnFailure(job);
  return failure.has_value() &&
         (failure->root.permanent || job.start_failures >= kMostStartFailures);
}

void FailToStart(Job* job, absl::Time now) {
  const std::optional<Failure> failure = OwnFailure(*job);
  if (!failure.has_value()) return;
  const std::string times = failure->root.permanent
                                ? ""
                                : absl::StrCat("its workers did not start ", job->start_failures,
                                               " times in a row, and ");
  job->state_reason =
      absl::StrCat(Describe(failure->root), "; ", times,
                   "no other node has room for the job; `muster retry ", job->id, "` tries again");
  job->reason_code = failure->root.code;
  job->phase = life::Ended{life::Ended::Outcome::kFailed, now};
}

}  // namespace muster::jobs
