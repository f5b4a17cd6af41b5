// What a job means beyond its syntax: defaults and validation of muster.v1.JobSpec
// (proto/muster/v1/job_spec.proto). Defaults and rules of single fields stand there beside the
// fields; here is what depends on several. Pure functions, thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_JOBSPEC_H_
#define MUSTER_COMMON_JOBSPEC_JOBSPEC_H_

#include <cstdint>
#include <string>

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Fills in every default, so that what is stored says what really runs. A valid
// spec stays valid; a second call changes nothing. What is wrong stays as it is, for ValidateSpec
// to name.
v1::JobSpec ResolveDefaults(v1::JobSpec spec);

// Every problem at once, first those of single fields, each with its path ("model.gpt2.heads",
// "stages[1].fit.steps"), what was found and what is allowed; empty when the job may run. Takes a
// spec with or without its defaults. Looks at no file.
v1::SpecProblems ValidateSpec(const v1::JobSpec& spec);

// Optimizer steps of all fit stages.
uint64_t TotalSteps(const v1::JobSpec& spec);

// One line per problem: "path: message", or "file:line: path: message" where the problem has a line
// and `file` is given, or "source: path: message" where it has a source (without the path where the
// source ends in it).
std::string FormatProblems(const v1::SpecProblems& problems, const std::string& file = "");

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_JOBSPEC_H_
