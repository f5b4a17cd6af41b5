// The differences between two settings of a job, and the changes that are allowed after the job has
// run. Only values on which no checkpoint depends may change. Pure.
#ifndef MUSTER_COMMON_JOBSPEC_CHANGES_H_
#define MUSTER_COMMON_JOBSPEC_CHANGES_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

struct Line {
  std::string path;   // as in the job file: "stages[1].fit.steps"
  std::string value;  // exact, and without a line break; "{}" for a message

  friend bool operator==(const Line&, const Line&) = default;
};

// Returns every value that is set, messages before their fields and a map's entries by their keys.
// Equal messages give equal lines, and different messages different lines. Pure.
std::vector<Line> LinesOf(const google::protobuf::Message& message);

struct Change {
  // "optimizer.adamw.lr".
  std::string path;
  // The value as in a job file. Empty: the value is absent.
  std::string old_value;
  std::string new_value;

  bool operator==(const Change&) const = default;
};

// Returns every value that differs, in the order of the paths. Both jobs get their defaults first.
std::vector<Change> Changes(const v1::JobSpec& before, const v1::JobSpec& after);

// Returns a problem for each change that a job must not make once it has run. After such a change
// its checkpoints would not fit, or it would be another job. Names only the first of several
// changes within `model`, `data` and so on, which have one reason.
v1::SpecProblems FixedSettings(const v1::JobSpec& before, const v1::JobSpec& after);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_CHANGES_H_
