// A retry with other settings, or from a certain step: the cluster's request for a RetryJob.
#ifndef MUSTER_COORDINATOR_SERVICE_RETRY_H_
#define MUSTER_COORDINATOR_SERVICE_RETRY_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::service {

// Adds the settings and the start of `request` to `command`, or sets its refusal. INVALID_ARGUMENT
// JOB_SPEC_INVALID with all problems of the settings, FOLDER_NOT_ABSOLUTE, FIELD_TOO_LONG;
// FAILED_PRECONDITION CHECKPOINT_NOT_FOUND. Looks at the files that the job would write, so it
// should not run on the engine's thread.
void AddRetry(const jobs::Job& job, const v1::RetryJobRequest& request,
              const membership::Timing& timing, cluster::CommandRequest* command);

// Returns the job for AddRetry; absent if there is no such job. Waits for the engine, so it must
// not run on the engine's thread. Errors: those of Engine::Read; UNAVAILABLE if the engine did not
// answer in time.
absl::StatusOr<std::optional<jobs::Job>> ReadForRetry(Engine* engine, const std::string& job_id,
                                                      absl::Duration timeout = absl::Seconds(30));

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RETRY_H_
