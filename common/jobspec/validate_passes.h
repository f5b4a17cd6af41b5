// The rules of what validation passes decide: `early_stopping`, `keep_best` and `export.from`.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_PASSES_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_PASSES_H_

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Metrics are refused if the model of the job certainly does not give them (docs/metrics.md).
void ValidatePasses(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_PASSES_H_
