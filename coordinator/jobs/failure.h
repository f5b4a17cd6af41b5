// Which of several failures to show: the cause, not what followed from it.
#ifndef MUSTER_COORDINATOR_JOBS_FAILURE_H_
#define MUSTER_COORDINATOR_JOBS_FAILURE_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/jobs/job.h"

namespace muster::jobs {

// FailureNote::code of a process that could not be started, or that ended before its first message,
// and the reason code of a job that fails because of such processes.
inline constexpr char kWorkerDidNotStart[] = "WORKER_DID_NOT_START";

// The root cause and its consequences.
struct Failure {
  FailureNote root;
  // The other ranks' reasons ("rank 1: ..."): at most 3, then "and N more".
  std::vector<std::string> consequences;
};

// The first note that is certainly a cause (reported as such, a signal, a lost process, a fault of
// the node). If there is none, the first exit without an explanation; otherwise the first note.
// Absent without notes.
std::optional<Failure> RootCause(const std::vector<FailureNote>& notes);

// A note about the end of this rank of the job's newest generation.
FailureNote NoteFor(const Job& job, uint32_t rank, FailureKind kind, const std::string& reason);

// Adds a note about a rank's end. Notes of older generations are dropped. For each rank only the
// more certain note is kept, and a missing log tail is filled in from the other one.
void AddNote(std::vector<FailureNote>* notes, FailureNote note);

// Drops the note that this rank's process of the generation was silent: it is known now why nothing
// was heard of it. The note about a process that hung is kept: it has collectives, or is permanent.
void DropSilence(std::vector<FailureNote>* notes, uint64_t generation, uint32_t rank);

// "rank 1 on node 'a': killed by signal 9".
std::string Describe(const FailureNote& note);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_FAILURE_H_
