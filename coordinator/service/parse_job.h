// Job files that clients without a reader of their own send as text (JobService.ParseJob).
#ifndef MUSTER_COORDINATOR_SERVICE_PARSE_JOB_H_
#define MUSTER_COORDINATOR_SERVICE_PARSE_JOB_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {

// The answer has what is wrong with the text. INVALID_ARGUMENT: FOLDER_NOT_ABSOLUTE;
// FIELD_TOO_LONG, because the settings would take too long (docs/limits.md). Pure.
absl::StatusOr<v1::ParseJobResponse> ParseJob(const v1::ParseJobRequest& request);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_PARSE_JOB_H_
