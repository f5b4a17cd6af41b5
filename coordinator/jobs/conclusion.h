// The next state of a job whose generation is over: it succeeds, fails, is cancelled, halts, or
// starts again. Also the cost of that start, and the time that the job may still run. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
#define MUSTER_COORDINATOR_JOBS_CONCLUSION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The reason code of a job whose work is done, but whose last save failed.
inline constexpr char kFinalSaveFailed[] = "FINAL_SAVE_FAILED";

// Returns the failure that ended the newest generation; absent if there is none.
std::optional<Failure> OwnFailure(const Job& job);

// Returns whether the flag is set for all ranks of the newest generation, and for how many.
inline bool All(const Job& job, bool Rank::*flag) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}
inline size_t Count(const Job& job, bool Rank::*flag) {
  return std::count_if(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}

// Returns whether the rank only has to exit by itself: it has finished, or has reported a failed
// last save of the training. All ranks report a failed last save.
bool Exits(const Job& job, uint32_t rank);

// Returns whether all ranks exit by themselves, at once or after they have reported that the last
// save failed. They are not told to end, so that each rank cleans up its files and sends its last
// reports. For example, rank 0 reports where the weights are.
bool EndsByItself(const Job& job);

// The way in which the newest generation ended or is about to end.
enum class End { kInterrupted, kNodeFault, kFailed };
End EndOf(const Job& job);

// Returns how long a job waits before its next start, when `failures_before` failures in a row came
// before the last failure. The wait after the first failure is 0. Then the wait is a second,
// doubled after each failure up to `longest`. The real wait is between half of that time and all of
// it, depending on the job's id and generation.
absl::Duration Backoff(const Job& job, uint32_t failures_before, absl::Duration longest);

// Sets the job CANCELLED. If the last save failed, state_reason gives the error and names what is
// kept.
void Cancel(Job* job, absl::Time now);

// Sets the next state of a job whose generation is over.
void Conclude(Job* job, absl::Time now);

// ---- Failed starts. A worker's process cannot be started, or ends before its first message: a
// library or memory is missing, or the process exits at once. Or the worker says that its node
// cannot run it: the node does not have its address, or too few files may be open. A failed start
// costs no restart.

// The number of failed starts in a row after which the job fails if no other node has room for it.
// If a worker has said that its node cannot run it, the job fails after its first failed start.
inline constexpr uint32_t kMostStartFailures = 3;

// True if the job waits for its next start, and its last failure is permanent or its last
// kMostStartFailures starts failed in a row.
bool HasStartedInVain(const Job& job);

// Fails the job, because no usable node has room for it. The reason code is the failed start's:
// kWorkerDidNotStart or NODE_FAULT.
void FailToStart(Job* job, absl::Time now);

// ---- `time_limit`: counts the time in which a generation of the attempt lives. The time in which
// the job waits for slots does not count.

// Returns the rest of the job's limit; infinite without a limit, never negative.
absl::Duration TimeLeft(const JobFields& job, absl::Time now);

// Returns when a live job will have used up its limit if its generation continues. The infinite
// future without a limit, or if the job is not live.
absl::Time TimeLimitEnd(const JobFields& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
