// The rules of `ema`, and of an export of its averages.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_EMA_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_EMA_H_

#include <cstdint>

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

void ValidateEma(const v1::JobSpec& spec, ProblemList* problems);

// Averages that are used must be there before training ends. `total_steps`: of all fit stages; 0 if
// the number is not known.
void ValidateEmaSteps(const v1::JobSpec& spec, uint64_t total_steps, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_EMA_H_
