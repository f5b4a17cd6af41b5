// The rules of `data`: which files belong together, and which data a model can read.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_DATA_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_DATA_H_

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

void ValidateData(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_DATA_H_
