// Where a job may write files: each output has a path of its own.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_OUTPUTS_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_OUTPUTS_H_

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Only by the texts of the paths; the programs that see the files compare the files
// (common/exports/target.h).
void ValidateOutputs(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_OUTPUTS_H_
