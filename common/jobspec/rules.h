// Applies the rules that are written beside the fields of a message (muster.v1.FieldRule), by
// reflection: what holds if a field is left out, and which values are allowed. Pure functions,
// thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_RULES_H_
#define MUSTER_COMMON_JOBSPEC_RULES_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "proto/muster/v1/options.pb.h"

namespace muster::jobspec {

// Whether `start.checkpoint` of a job file names the directory of a checkpoint: a text with a '/'.
// Any other text names a job.
bool IsDirectory(const std::string& checkpoint);

struct JobAndStep {
  std::string job;
  std::optional<uint64_t> step;  // absent: its newest checkpoint
};
// "JOB" or "JOB@STEP"; absent if the text is neither.
std::optional<JobAndStep> ParseJobAndStep(const std::string& checkpoint);

// Durations as in job files: "90s", "10m", "1h30m".
inline constexpr char kAllowedDurations[] =
    "a number above 0 with its unit, such as 90s, 10m or 1h30m";

// Absent unless the text is a duration above 0 and not infinite.
inline std::optional<absl::Duration> DurationOf(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) return std::nullopt;
  if (duration <= absl::ZeroDuration() || duration >= absl::Hours(1000000)) return std::nullopt;
  return duration;
}

// An empty rule if the field has none.
const v1::FieldRule& RuleOf(const google::protobuf::FieldDescriptor& field);

// Whether a string field, or each element of it, is a path.
bool IsPath(const google::protobuf::FieldDescriptor& field);

// Sets each field that is left out and has a default, in `message` and in every message that it
// then contains. Crashes if a default does not fit its field's type, which is a mistake in the
// schema that a test finds.
void FillDefaults(google::protobuf::Message* message);

// Adds a problem for each broken rule, in the order of the fields: a missing value, a oneof without
// a choice, an unknown number of an enum, a number outside its range or not finite, a text of the
// wrong form.
void CheckRules(const google::protobuf::Message& message, ProblemList* problems);

// The numbers that the rule allows: "1 to 16777216", "a number above 0"; "" if it has no range.
std::string AllowedNumbers(const v1::FieldRule& rule);

// Each value of a field with FieldRule.INPUT_PATH: the field's path, and the value.
std::vector<std::pair<std::string, std::string>> InputFiles(const v1::JobSpec& spec);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_RULES_H_
