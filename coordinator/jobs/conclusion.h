// What becomes of a job whose generation is over: it succeeded, failed, was cancelled, halts, or
// starts again, and what that start costs. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
#define MUSTER_COORDINATOR_JOBS_CONCLUSION_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The reason code of a job whose work is done, but for its last save.
inline constexpr char kFinalSaveFailed[] = "FINAL_SAVE_FAILED";

// The failure that ended the newest generation; absent where none did.
std::optional<Failure> OwnFailure(const Job& job);

// How the newest generation ended, or is about to.
enum class End { kInterrupted, kNodeFault, kFailed };
End EndOf(const Job& job);

// How long a job waits before its next start, after so many failures in a row before this one:
// nothing after the first one, then a second, doubled up to `longest`, of which between half and
// all is taken, by the job's id and generation.
absl::Duration Backoff(const Job& job, uint32_t failures_before, absl::Duration longest);

// A job that is stopped has not lost anything but what was not saved.
void Cancel(Job* job, absl::Time now);

// The generation is over: what becomes of the job.
void Conclude(Job* job, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
