// The files that a job reads.
#ifndef MUSTER_COMMON_JOBSPEC_INPUTS_H_
#define MUSTER_COMMON_JOBSPEC_INPUTS_H_

#include <string>
#include <utility>
#include <vector>

#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

// Each value of a field with FieldRule.INPUT_PATH: the field's path, and the value.
std::vector<std::pair<std::string, std::string>> InputFiles(const v1::JobSpec& spec);

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_INPUTS_H_
