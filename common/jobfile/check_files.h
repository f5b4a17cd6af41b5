// Checks that the files that a job reads exist, and that the job does not overwrite files that it
// must not. Only prompts and the manifest of a checkpoint are read.
#ifndef MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
#define MUSTER_COMMON_JOBFILE_CHECK_FILES_H_

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// Where the job may not write a file, as seen from this machine, each by its field's path: the
// export or the output of a stage `predict` would replace a file of another writer, or something
// that is never replaced (common/exports/target.h), or a folder for files cannot be one
// (common/exports/folder.h). Nothing is added for what is not known here.
v1::SpecProblems CheckOutputs(const v1::JobSpec& spec);

// Each input file (FieldRule.INPUT_PATH) that is missing, unreadable, empty or not a regular file,
// by its field's path; prompts that do not fit the job; a checkpoint with which a job cannot go on
// (continued.h); and the result of CheckOutputs. Useful only if the workers see the same files as
// the caller.
v1::SpecProblems CheckFiles(const v1::JobSpec& spec);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
