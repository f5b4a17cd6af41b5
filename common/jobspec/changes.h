// What differs between two settings of a job, and what a job that has run may change: the values
// that its checkpoints do not depend on. Pure.
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

// Every value that is set, messages before their fields and a map's entries by their keys. Equal
// messages give equal lines, and different ones different lines. Pure.
std::vector<Line> LinesOf(const google::protobuf::Message& message);

struct Change {
  // "optimizer.adamw.lr".
  std::string path;
  // As in a job file. Empty: it is left out.
  std::string old_value;
  std::string new_value;

  bool operator==(const Change&) const = default;
};

// Every value that differs, in the order of the paths. The defaults of both are filled in.
std::vector<Change> Changes(const v1::JobSpec& before, const v1::JobSpec& after);

// A problem for each change that a job must not make once it has run: with it, its checkpoints
// would not fit, or it would be another job. Of several changes within `model`, `data` and so on,
// which have one reason, only the first is named.
v1::SpecProblems FixedSettings(const v1::JobSpec& before, const v1::JobSpec& after);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_CHANGES_H_
