// Converts a v1::JobSpec to a train::Job.
#ifndef MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_
#define MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/train/job/job.h"

namespace muster::control {

// Fills in the defaults of fields that `given` leaves out, and checks the result. The coordinator
// has done so before, but a coordinator of another version may not know all fields and rules.
// INVALID_ARGUMENT: every problem on a line of its own, "path: found ...; allowed: ...". An
// alternative that this program does not know counts as missing.
absl::StatusOr<train::Job> JobFromSpec(const v1::JobSpec& given);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_JOB_FROM_SPEC_H_
