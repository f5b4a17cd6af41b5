// What a job must have for a command, as the command's rule says
// (proto/muster/v1/command_rule.proto).
#ifndef MUSTER_COORDINATOR_SERVICE_NEEDS_H_
#define MUSTER_COORDINATOR_SERVICE_NEEDS_H_

#include "absl/status/status.h"
#include "coordinator/jobs/job.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::service {

v1::JobSpec SpecOf(const jobs::Job& job);

// FAILED_PRECONDITION NO_OPTIMIZER, NO_CHECKPOINTS, CANNOT_GENERATE: the job file lacks what a
// command of this kind needs.
absl::Status CheckNeeds(const jobs::Job& job, v1::Operation::Kind kind);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_NEEDS_H_
