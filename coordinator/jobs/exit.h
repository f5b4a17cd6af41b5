// The end of a rank's process, and what it means for the job: the end was planned, was asked for,
// or is a failure. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_EXIT_H_
#define MUSTER_COORDINATOR_JOBS_EXIT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// How a process ended.
struct Exit {
  enum class Cause { kCode, kSignal, kStartError };
  Cause cause = Cause::kCode;
  // The exit code or the signal.
  int number = 0;
  // Why it could not be started.
  std::string start_error;
  std::string log_tail;
  // Why it ended, if its agent knows. Values are those of v1::WorkerExit::Cause. All except the
  // first and the last are planned ends, which are not failures.
  enum class Why {
    kUnknown = 0,
    kStoppedAsTold = 1,
    kAgentStopped = 2,
    kDrained = 3,
    kLeaseOver = 5,
    kNodeFault = 6,
  };
  Why why = Why::kUnknown;
};
inline bool IsPlanned(Exit::Why why) {
  return why != Exit::Why::kUnknown && why != Exit::Why::kNodeFault;
}

// The note about a process that ended although this was neither planned nor asked for.
FailureNote NoteForExit(const Job& job, uint32_t rank, const Exit& exit);

// Whether a process ended because it was told to end. The agent sends SIGKILL at the time
// `kill_timeout` after SIGTERM, so an earlier SIGKILL had another sender.
bool EndedAsTold(const Job& job, const Exit& exit, absl::Duration kill_timeout, absl::Time now);

// The reason of a planned end on this node, for people.
std::string PlannedEnd(const std::string& node, Exit::Why why);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_EXIT_H_
