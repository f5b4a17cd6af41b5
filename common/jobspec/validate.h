// The rules of the parts of a job, for ValidateSpec.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_H_

#include <cstdint>

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// The rules of `data`: which files belong together, and which data a model can read.
void ValidateData(const v1::JobSpec& spec, ProblemList* problems);

void ValidateOptimizer(const v1::JobSpec& spec, ProblemList* problems);
// `fit_steps`: those of all fit stages; 0: there are none, or they are not known.
void ValidateSchedule(const v1::JobSpec& spec, uint64_t fit_steps, ProblemList* problems);
// With `loss_scale`.
void ValidatePrecision(const v1::JobSpec& spec, ProblemList* problems);

// Each output has a path of its own. Only by the texts of the paths; the programs that see the
// files compare the files (common/exports/target.h).
void ValidateOutputs(const v1::JobSpec& spec, ProblemList* problems);

// The rules of what validation passes decide: `early_stopping`, `keep_best` and `export.from`.
// Metrics are refused if the model of the job certainly does not give them
// (docs/reference/metrics.md).
void ValidatePasses(const v1::JobSpec& spec, ProblemList* problems);

// The rules of the stages `predict`: what they need, and how their files are named.
void ValidatePredict(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_H_
