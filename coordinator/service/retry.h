// A retry with other settings, or from a certain step: what RetryJob asks the core for.
#ifndef MUSTER_COORDINATOR_SERVICE_RETRY_H_
#define MUSTER_COORDINATOR_SERVICE_RETRY_H_

#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/timing.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {

// Adds the settings and the start of `request` to `command`, or its refusal: INVALID_ARGUMENT
// JOB_SPEC_INVALID with all problems of the settings, FOLDER_NOT_ABSOLUTE, FIELD_TOO_LONG;
// FAILED_PRECONDITION CHECKPOINT_NOT_FOUND. Pure.
void AddRetry(const jobs::Job& job, const v1::RetryJobRequest& request,
              const membership::Timing& timing, cluster::CommandRequest* command);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RETRY_H_
