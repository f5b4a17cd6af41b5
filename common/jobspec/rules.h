// Applies the rules beside the fields of a message (muster.v1.FieldRule), by reflection: the
// defaults of absent fields, and the allowed values. Pure functions, thread-safe.
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

// Returns whether `start.checkpoint` of a job file names the directory of a checkpoint: a text with
// a '/'. Any other text names a job.
bool IsDirectory(const std::string& checkpoint);

struct JobAndStep {
  std::string job;
  std::optional<uint64_t> step;  // absent: the job's newest checkpoint
};
// Parses "JOB" or "JOB@STEP"; absent if the text is neither.
std::optional<JobAndStep> ParseJobAndStep(const std::string& checkpoint);

// Durations as in job files: "90s", "10m", "1h30m".
inline constexpr char kAllowedDurations[] =
    "a number above 0 with its unit, such as 90s, 10m or 1h30m";

// The duration in `text`. Absent unless the text is a duration above 0 and not infinite.
inline std::optional<absl::Duration> DurationOf(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) return std::nullopt;
  if (duration <= absl::ZeroDuration() || duration >= absl::Hours(1000000)) return std::nullopt;
  return duration;
}

// The rule of the field; an empty rule if the field has none.
const v1::FieldRule& RuleOf(const google::protobuf::FieldDescriptor& field);

// Returns whether a string field, or each element of it, is a path.
bool IsPath(const google::protobuf::FieldDescriptor& field);

// Sets each absent field that has a default, in `message` and in every message that it then
// contains. Crashes if a default does not fit its field's type: a mistake in the schema, which a
// test finds.
void FillDefaults(google::protobuf::Message* message);

// Adds a problem for each broken rule, in the order of the fields:
// - a missing value, or a oneof without a choice
// - an unknown number of an enum
// - a number outside its range or not finite
// - a text of the wrong form
void CheckRules(const google::protobuf::Message& message, ProblemList* problems);

// The numbers that the rule allows: "1 to 16777216", "a number above 0"; "" without a range.
std::string AllowedNumbers(const v1::FieldRule& rule);

// The path and the value of each field with FieldRule.INPUT_PATH.
std::vector<std::pair<std::string, std::string>> InputFiles(const v1::JobSpec& spec);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_RULES_H_
