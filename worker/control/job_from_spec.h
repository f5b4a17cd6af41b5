// v1::JobSpec -> train::Job.
#ifndef MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_
#define MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/train/job.h"

namespace muster::control {

// spec: with its defaults, and valid (common/jobspec). INVALID_ARGUMENT for an alternative that
// this program does not know.
absl::StatusOr<train::Job> JobFromSpec(const v1::JobSpec& spec);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_
