// How a worker ended, and how this is reported to the coordinator.
#ifndef MUSTER_WORKER_CONTROL_WORKER_END_H_
#define MUSTER_WORKER_CONTROL_WORKER_END_H_

#include "absl/status/status.h"
#include "worker/control/control_stream.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session.h"

namespace muster::control {

// If `error` is OK, the end that `end` describes; otherwise a failure at `end.step`, the last step
// that the session had done.
struct WorkerEnd {
  train::SessionEnd end;
  absl::Status error;
  train::FailureKind kind = train::FailureKind::kTransient;  // of `error`
  bool reported = false;
};

v1::WorkerReport EndReport(const WorkerEnd& end);

// Reports it, logs it, and waits until the report is durable: for 2 s at most after a failure, and
// as FlushUnlessPreempted after a good end. Does nothing the second time.
void ReportEnd(ControlStream& stream, WorkerEnd& end);

// Waits until every report is durable, at most `timeout`. A preempted worker must end soon, and its
// checkpoint is written: it waits for 2 s at most, for a coordinator that hangs or cannot write its
// store.
absl::Status FlushUnlessPreempted(ControlStream& stream, absl::Duration timeout);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_WORKER_END_H_
