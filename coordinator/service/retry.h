// A retry with other settings, or from a certain step: what RetryJob asks the core for.
#ifndef MUSTER_COORDINATOR_SERVICE_RETRY_H_
#define MUSTER_COORDINATOR_SERVICE_RETRY_H_

#include <optional>
#include <string>

#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {

// Adds the settings and the start of `request` to `command`, or its refusal: INVALID_ARGUMENT
// JOB_SPEC_INVALID with all problems of the settings, FOLDER_NOT_ABSOLUTE, FIELD_TOO_LONG;
// FAILED_PRECONDITION CHECKPOINT_NOT_FOUND. Looks at the files that the job would write, so it
// should not run on the engine's thread.
void AddRetry(const jobs::Job& job, const v1::RetryJobRequest& request,
              const membership::Timing& timing, cluster::CommandRequest* command);

// What AddRetry needs of a job. Waits for the engine, so it must not run on the engine's thread.
// Absent: there is no such job, or the engine does not answer; it refuses what follows, too.
std::optional<jobs::Job> ReadForRetry(Engine* engine, const std::string& job_id);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RETRY_H_
