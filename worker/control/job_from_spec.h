// v1::JobSpec (all defaults filled in) -> train::Job: where the wire types of a job end.
#ifndef MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_
#define MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/train/job.h"

namespace muster::control {

// INVALID_ARGUMENT for what a valid, resolved spec does not hold (an alternative that is not set).
absl::StatusOr<train::Job> JobFromSpec(const v1::JobSpec& spec);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_
