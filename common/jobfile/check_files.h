// Whether the files that a job reads are there: what can be told without reading them.
#ifndef MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
#define MUSTER_COMMON_JOBFILE_CHECK_FILES_H_

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// Each input file (jobspec::PathUse::kInput) that is missing, unreadable, empty or no regular file, by its
// field's path. Only of use where the workers see the same files as the caller.
v1::SpecProblems CheckFiles(const v1::JobSpec& spec);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
