// The numbers of a step, or of a pass of validation or of a test, with their tags
// (docs/tensorboard.md). Pure.
#ifndef MUSTER_WORKER_TENSORBOARD_SCALARS_H_
#define MUSTER_WORKER_TENSORBOARD_SCALARS_H_

#include "proto/muster/v1/metrics.pb.h"
#include "worker/tensorboard/event.pb.h"

namespace muster::tensorboard {

// `metrics`: as a session reports them. Samples and tokens per second are computed as the
// coordinator computes them.
Event ScalarsOf(const v1::StepMetrics& metrics, double wall_time);

}  // namespace muster::tensorboard

#endif  // MUSTER_WORKER_TENSORBOARD_SCALARS_H_
