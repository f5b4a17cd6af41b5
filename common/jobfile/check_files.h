// Checks that the files that a job reads exist, without reading them, and that the job does not
// overwrite a file of another writer.
#ifndef MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
#define MUSTER_COMMON_JOBFILE_CHECK_FILES_H_

#include <string>

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// Why the job may not write its export to the path in its file, as seen from this machine: the path
// has a file of another writer. Empty: it may, or this is not known here.
std::string CheckExport(const v1::JobSpec& spec);

// Each input file (FieldRule.INPUT_PATH) that is missing, unreadable, empty or not a regular file,
// by its field's path; and the result of CheckExport. Useful only if the workers see the same files
// as the caller.
v1::SpecProblems CheckFiles(const v1::JobSpec& spec);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
