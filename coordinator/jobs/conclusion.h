// What happens to a job whose generation is over: it has succeeded, has failed, was cancelled,
// halts, or starts again, and what that start costs; and how long the job may still run. Pure.
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

// The reason code of a job whose work is done except for its last save.
inline constexpr char kFinalSaveFailed[] = "FINAL_SAVE_FAILED";

// The failure that ended the newest generation; absent if there is none.
std::optional<Failure> OwnFailure(const Job& job);

// Of how many ranks of the newest generation a flag is set.
inline bool All(const Job& job, bool Rank::*flag) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}
inline size_t Count(const Job& job, bool Rank::*flag) {
  return std::count_if(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}

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

// ---- Starts that fail because a worker's process cannot be started, or ends before its first
// message: a library is missing, there is no memory, it exits at once. Or because the worker says
// that its node cannot take it: the node does not have its address, or too few files may be open.
// Such a start costs no restart.

// After so many such starts in a row the job fails where no other node has room for it; after a
// worker has said that its node cannot take it, at once.
inline constexpr uint32_t kMostStartFailures = 3;

// The job waits for its next start, and another start on the same node would be in vain.
bool HasStartedInVain(const Job& job);

// It fails, because no node that may do better has room for it. The reason code is that of the
// start: kWorkerDidNotStart or NODE_FAULT.
void FailToStart(Job* job, absl::Time now);

// ---- `time_limit`: time counts while a generation of the attempt lives, not while the job waits
// for slots.

// What is left of the job's limit; infinite without a limit, never negative.
absl::Duration TimeLeft(const JobFields& job, absl::Time now);

// When a live job will have used up its limit if its generation continues; the infinite future
// without a limit, or if the job is not live.
absl::Time TimeLimitEnd(const JobFields& job);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_CONCLUSION_H_
