// The job file: YAML in the shape of muster.v1.JobSpec (docs/reference/job-file.md).
#ifndef MUSTER_COMMON_JOBFILE_JOBFILE_H_
#define MUSTER_COMMON_JOBFILE_JOBFILE_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "common/jobfile/overrides.h"
#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

struct JobFile {
  // The name of the file in messages.
  std::string name;
  // The valid job (jobspec::ValidateSpec), with absolute paths, without defaults.
  v1::JobSpec spec;
  // The line (from 1) of every field and list element in the file, by path.
  std::map<std::string, int> lines;
  // The source of each field that an override has set: "--set KEY", by path.
  std::map<std::string, std::string> sources;
};

// Reads a job file, applies the overrides, and checks the result. Errors:
// - INVALID_ARGUMENT JOB_SPEC_INVALID: all problems as SpecProblems (common/rpc/error.h), each with
//   its path and its line or override. The message has one line for each.
// - NOT_FOUND, PERMISSION_DENIED, INTERNAL: the file cannot be read.
absl::StatusOr<JobFile> LoadJobFile(const std::string& path, const Overrides& overrides = {});

// Parses a text as LoadJobFile does. `file` is the name of the text in messages. Relative paths are
// relative to `base_folder`, an absolute path.
absl::StatusOr<JobFile> ParseJobFile(const std::string& text, const std::string& file,
                                     const std::string& base_folder,
                                     const Overrides& overrides = {});

// Applies the overrides to a job with absolute paths, and checks the result as LoadJobFile does.
// `name`: the job's name in messages.
absl::StatusOr<JobFile> ChangeJob(const v1::JobSpec& spec, const std::string& name,
                                  const Overrides& overrides);

// Sets the place of each problem: the override that set its field, or the line of its field or of
// the nearest enclosing field.
void AddPlaces(const JobFile& file, v1::SpecProblems* problems);

// The error that LoadJobFile returns for these problems (at least one) of a file.
absl::Status ProblemsError(const std::string& file, const v1::SpecProblems& problems);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_JOBFILE_H_
