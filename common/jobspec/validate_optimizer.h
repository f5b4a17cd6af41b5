// The rules of `optimizer`, `schedule`, and `precision` with its `loss_scale`.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_OPTIMIZER_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_OPTIMIZER_H_

#include <cstdint>

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

void ValidateOptimizer(const v1::JobSpec& spec, ProblemList* problems);
// `fit_steps`: those of all fit stages; 0: there are none, or they are not known.
void ValidateSchedule(const v1::JobSpec& spec, uint64_t fit_steps, ProblemList* problems);
void ValidatePrecision(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_OPTIMIZER_H_
