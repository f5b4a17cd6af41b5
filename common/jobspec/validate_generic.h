// The rules that hold for every field of its kind, whatever message it stands in.
#ifndef MUSTER_COMMON_JOBSPEC_VALIDATE_GENERIC_H_
#define MUSTER_COMMON_JOBSPEC_VALIDATE_GENERIC_H_

#include "common/jobspec/problem_list.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Oneofs without an alternative, enum values that do not exist, numbers that are not finite, paths that are
// empty or relative.
void ValidateGeneric(const v1::JobSpec& spec, ProblemList* problems);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_VALIDATE_GENERIC_H_
