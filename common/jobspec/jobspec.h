// The defaults and the validation of muster.v1.JobSpec (proto/muster/v1/job_spec.proto). Defaults
// and rules of single fields are beside the fields there; this code has those that depend on
// several fields. Pure functions, thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_JOBSPEC_H_
#define MUSTER_COMMON_JOBSPEC_JOBSPEC_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Fills in every default, so that the stored job describes what really runs. A valid
// spec stays valid; a second call changes nothing. Invalid values are not changed: ValidateSpec
// reports them.
v1::JobSpec ResolveDefaults(v1::JobSpec spec);

// Returns the problems, first those of single fields, each with its path ("model.gpt2.heads",
// "stages[1].fit.steps"), what was found and what is allowed; empty if the job is valid. If the job
// is too large (sizes.h), these are its only problems. Of more than kMostProblems the others are
// counted (ProblemList::problems). Takes a spec with or without its defaults. Reads no file.
v1::SpecProblems ValidateSpec(const v1::JobSpec& spec);

// Whether the job has a fit stage.
bool Trains(const v1::JobSpec& spec);

// The number of optimizer steps of all fit stages, if none ends early. Absent if a stage counts in
// epochs: then only who has opened the data knows the number.
std::optional<uint64_t> TotalSteps(const v1::JobSpec& spec);

// The same without limit_steps: where the schedule of the job ends.
std::optional<uint64_t> UnlimitedSteps(const v1::JobSpec& spec);

// For a job whose UnlimitedSteps is absent, once the number is known: the problems that
// ValidateSpec finds in other jobs by this number.
v1::SpecProblems ValidateSteps(const v1::JobSpec& spec, uint64_t total_steps);

// One line per problem: "path: message", or "file:line: path: message" if the problem has a line
// and `file` is given, or "source: path: message" if it has a source (without the path if the
// source ends with it).
std::string FormatProblems(const v1::SpecProblems& problems, const std::string& file = "");

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_JOBSPEC_H_
