// Which of several failures to show: the cause, not what followed from it.
#ifndef MUSTER_COORDINATOR_JOBS_FAILURE_H_
#define MUSTER_COORDINATOR_JOBS_FAILURE_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/jobs/job.h"

namespace muster::jobs {

// The root cause and what followed.
struct Failure {
  FailureNote root;
  // The other ranks' reasons ("rank 1: ..."): at most 3, then "and N more".
  std::vector<std::string> consequences;
};

// The first that is certainly a cause (reported as such, a signal, a lost process); without any,
// the first unexplained exit; without that, the first at all. Absent without notes.
std::optional<Failure> RootCause(const std::vector<FailureNote>& notes);

// Adds what became known of a rank's end. Notes of older generations are dropped; of one rank the
// surer note stays, and a missing log tail is filled in.
void AddNote(std::vector<FailureNote>* notes, FailureNote note);

// "rank 1 on node 'a': killed by signal 9".
std::string Describe(const FailureNote& note);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_FAILURE_H_
