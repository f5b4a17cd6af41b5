// The rules of the stages `predict`: what they need, and how their files are named.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_PREDICT_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_PREDICT_H_

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

void ValidatePredict(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_PREDICT_H_
