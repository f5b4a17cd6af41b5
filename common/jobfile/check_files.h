// Checks that the input files of a job exist, and that the job overwrites no file that it must not.
// Reads only prompts and the manifest of a checkpoint.
#ifndef MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
#define MUSTER_COMMON_JOBFILE_CHECK_FILES_H_

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// Returns the places where the job may not write a file, as seen from this machine, each by its
// field's path. Says nothing about places that cannot be checked here. A problem is:
// - The export or the output of a stage `predict` would replace a file of another writer, or a file
//   that is never replaced (common/exports/target.h).
// - A folder for files cannot be a folder (common/exports/folder.h).
v1::SpecProblems CheckOutputs(const v1::JobSpec& spec);

// Returns the problems of the job's files, each by its field's path. Useful only if the workers see
// the same files as the caller. The problems are:
// - an input file (FieldRule.INPUT_PATH) that is missing, unreadable, empty or not a regular file
// - prompts that do not fit the job
// - a checkpoint from which the job cannot continue (continued.h)
// - the problems of CheckOutputs
v1::SpecProblems CheckFiles(const v1::JobSpec& spec);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
