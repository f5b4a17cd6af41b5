// Whether the files that a job reads are there, and nobody else's file is where it writes: what can
// be told without reading them.
#ifndef MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
#define MUSTER_COMMON_JOBFILE_CHECK_FILES_H_

#include <string>

#include "proto/muster/v1/error.pb.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobfile {

// What there is against writing the job's export where its file says, as this machine sees it: a
// file of somebody else. Empty: nothing, or it cannot be told here.
std::string CheckExport(const v1::JobSpec& spec);

// Each input file (FieldRule.INPUT_PATH) that is missing, unreadable, empty or no regular file, by
// its field's path; and what CheckExport says. Only of use where the workers see the same files as
// the caller.
v1::SpecProblems CheckFiles(const v1::JobSpec& spec);

}  // namespace muster::jobfile

#endif  // MUSTER_COMMON_JOBFILE_CHECK_FILES_H_
