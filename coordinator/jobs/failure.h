// The ends of ranks' processes: planned, asked for, or failures. Also the choice of the failure to
// show: the cause, and not its consequences. Pure.
#ifndef MUSTER_COORDINATOR_JOBS_FAILURE_H_
#define MUSTER_COORDINATOR_JOBS_FAILURE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

// FailureNote::code of a process that could not be started, or that ended before its first message.
// It is also the reason code of a job that fails because of such processes.
inline constexpr char kWorkerDidNotStart[] = "WORKER_DID_NOT_START";

// The root cause and its consequences.
struct Failure {
  FailureNote root;
  // The other ranks' reasons ("rank 1: ..."): at most 3, then "and N more".
  std::vector<std::string> consequences;
};

// Returns the first note that is certainly a cause (reported as such, a signal, a lost process, a
// fault of the node). If there is no such note, returns the first exit without an explanation,
// otherwise the first note. Absent without notes.
std::optional<Failure> RootCause(const std::vector<FailureNote>& notes);

// Makes a note about the end of this rank of the job's newest generation.
FailureNote NoteFor(const Job& job, uint32_t rank, FailureKind kind, const std::string& reason);

// Adds a note about a rank's end, and drops notes of older generations. Keeps only the more certain
// of two notes about a rank, and fills in a missing log tail from the other note.
void AddNote(std::vector<FailureNote>* notes, FailureNote note);

// Drops the note that this rank's process of the generation was silent, because the reason of the
// silence is known. Keeps the note about a process that hung: this note has collectives, or is
// permanent.
void DropSilence(std::vector<FailureNote>* notes, uint64_t generation, uint32_t rank);

// Returns "rank 1 on node 'a': killed by signal 9".
std::string Describe(const FailureNote& note);

// The way in which a process ended.
struct Exit {
  enum class Cause { kCode, kSignal, kStartError };
  Cause cause = Cause::kCode;
  // The exit code or the signal.
  int number = 0;
  // The error of a process that could not be started.
  std::string start_error;
  std::string log_tail;
  // The reason of the end, if the agent knows it. Values are those of v1::WorkerExit::Cause. All
  // except the first and the last are planned ends, which are not failures.
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

// Returns whether the process ended because its agent did. A new agent tells of such processes.
inline bool EndedWithItsAgent(const Exit& exit) {
  return exit.why == Exit::Why::kNodeFault && exit.cause == Exit::Cause::kSignal;
}

// Makes the note about a process whose end was neither planned nor asked for.
FailureNote NoteForExit(const Job& job, uint32_t rank, const Exit& exit);

// Returns whether a process ended because it was told to end. The agent sends SIGKILL
// `kill_timeout` after SIGTERM, so an earlier SIGKILL had another sender.
bool EndedAsTold(const Job& job, const Exit& exit, absl::Duration kill_timeout, absl::Time now);

// Returns the reason of a planned end on this node, for people.
std::string PlannedEnd(const std::string& node, Exit::Why why);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_FAILURE_H_
