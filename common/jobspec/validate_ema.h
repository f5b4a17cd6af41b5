// The rules of `ema`, and of an export of its averages.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_EMA_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_EMA_H_

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

void ValidateEma(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_EMA_H_
