// What happens to a job whose generation is over: it has succeeded, has failed, was cancelled,
// halts, or starts again, and what that start costs. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
#define MUSTER_COORDINATOR_JOBS_CONCLUSION_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The reason code of a job whose work is done except for its last save.
inline constexpr char kFinalSaveFailed[] = "FINAL_SAVE_FAILED";

// The failure that ended the newest generation; absent if there is none.
std::optional<Failure> OwnFailure(const Job& job);

// The rank does nothing more and exits by itself: it has finished, or it has reported that the last
// save of the training failed, which all ranks report.
bool Exits(const Job& job, uint32_t rank);

// All ranks exit by themselves, or will once they have reported that the last save failed. They are
// left alone so that each cleans up what it wrote and reports what it knows: rank 0 where the
// weights are, for example.
bool EndsByItself(const Job& job);

// How the newest generation ended, or is about to.
enum class End { kInterrupted, kNodeFault, kFailed };
End EndOf(const Job& job);

// How long a job waits before its next start, after `failures_before` failures in a row before this
// one. After the first failure it does not wait; then it waits a second, which is doubled up to
// `longest`. The real wait is between half of that and all of it, depending on the job's id and
// generation.
absl::Duration Backoff(const Job& job, uint32_t failures_before, absl::Duration longest);

// Sets the job CANCELLED; it has lost only what was not saved.
void Cancel(Job* job, absl::Time now);

// The generation is over: sets the job's next state.
void Conclude(Job* job, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
