// The defaults and the validation of muster.v1.JobSpec. The defaults and rules of single fields are
// in proto/muster/v1/job_spec.proto. This code has the rules for several fields together. Pure
// functions, thread-safe.
#ifndef MUSTER_COMMON_JOBSPEC_JOBSPEC_H_
#define MUSTER_COMMON_JOBSPEC_JOBSPEC_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Fills in every default, so that the stored job describes what really runs. A valid spec stays
// valid; a second call changes nothing. Does not change invalid values: ValidateSpec reports them.
v1::JobSpec ResolveDefaults(v1::JobSpec spec);

// Returns the problems, first those of single fields; empty if the job is valid. Each has its path
// ("model.gpt2.heads", "stages[1].fit.steps"), the found and the allowed value. A job that is too
// large has only problems of size (sizes.h). Problems beyond kMostProblems are counted
// (ProblemList::problems). Takes a spec with or without its defaults. Reads no file.
v1::SpecProblems ValidateSpec(const v1::JobSpec& spec);

// Returns whether the job has a fit stage.
bool Trains(const v1::JobSpec& spec);

// Returns whether a model of this kind may continue prompts. Of an exported model, only the worker
// knows.
bool MayGenerate(const v1::ModelSpec& model);

// Returns whether a model may be trained or validated on documents.
bool HasDocuments(const v1::DataSpec& data);
// The target that a loss ignores in jobs on documents, unless the job says another one.
inline constexpr int64_t kIgnoredTarget = -100;

// Returns whether the job file says the model's vocabulary and context, or that it has none. Of a
// model from a folder or a plug-in, only the workers know.
bool KnowsVocabulary(const v1::ModelSpec& model);

// The number of optimizer steps of all fit stages, if none ends early. Absent if a stage counts in
// epochs: then the number is known only after the data are opened.
std::optional<uint64_t> TotalSteps(const v1::JobSpec& spec);

// The number of optimizer steps without limit_steps, at which the schedule of the job ends.
std::optional<uint64_t> UnlimitedSteps(const v1::JobSpec& spec);

// Returns the problems of the number of steps, for a job whose UnlimitedSteps is absent, when the
// number is known. ValidateSpec finds these problems in other jobs.
v1::SpecProblems ValidateSteps(const v1::JobSpec& spec, uint64_t total_steps);

// Returns one line per problem:
// - "path: message"
// - "file:line: path: message" if the problem has a line and `file` is given
// - "source: path: message" if the problem has a source (without the path if the source ends with
//   it)
std::string FormatProblems(const v1::SpecProblems& problems, const std::string& file = "");

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_JOBSPEC_H_
