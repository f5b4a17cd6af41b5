// Converts a stage of a job file to a stage of the training core.
#ifndef MUSTER_WORKER_CONTROL_STAGE_FROM_SPEC_H_
#define MUSTER_WORKER_CONTROL_STAGE_FROM_SPEC_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "worker/train/job/job.h"

namespace muster::control {

// `stage` has its defaults. INVALID_ARGUMENT: its kind is not known.
absl::StatusOr<train::Stage> StageOf(const v1::StageSpec& stage);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_STAGE_FROM_SPEC_H_
