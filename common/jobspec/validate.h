// The rules of the parts of a job, for ValidateSpec.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_H_

#include <cstdint>
#include <string>

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// The name of the model's kind: "gpt2". The model must have one.
std::string KindOf(const v1::ModelSpec& model);

// The rules of `data`: files that belong together, and data that a model can read.
void ValidateData(const v1::JobSpec& spec, ProblemList* problems);

void ValidateOptimizer(const v1::JobSpec& spec, ProblemList* problems);
// `fit_steps`: the steps of all fit stages; 0: there are none, or they are not known.
void ValidateSchedule(const v1::JobSpec& spec, uint64_t fit_steps, ProblemList* problems);
// The rules of `precision` and `loss_scale`.
void ValidatePrecision(const v1::JobSpec& spec, ProblemList* problems);

// Each output has its own path. Compares only the texts of the paths; programs that see the files
// compare the files (common/exports/target.h).
void ValidateOutputs(const v1::JobSpec& spec, ProblemList* problems);

// The rules of the settings that depend on validation passes: `early_stopping`, `keep_best` and
// `export.from`. Refuses metrics that the model of the job certainly does not give
// (docs/reference/metrics.md).
void ValidatePasses(const v1::JobSpec& spec, ProblemList* problems);

// The rules of the stages `predict`: their needs, and the names of their files.
void ValidatePredict(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_H_
