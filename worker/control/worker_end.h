// The end of a worker, and its report to the coordinator.
#ifndef MUSTER_WORKER_CONTROL_WORKER_END_H_
#define MUSTER_WORKER_CONTROL_WORKER_END_H_

#include "absl/status/status.h"
#include "worker/control/control_stream.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session.h"

namespace muster::control {

// The end of a worker. `error` OK: the end that `end` describes. Otherwise: a failure at
// `end.step`, the last step that the session had done.
struct WorkerEnd {
  train::SessionEnd end;
  absl::Status error;
  train::FailureKind kind = train::FailureKind::kTransient;  // of `error`
  bool reported = false;
};

v1::WorkerReport EndReport(const WorkerEnd& end);

// Reports and logs the end, and waits until the report is durable. After a failure the wait is 2 s
// at most, and after a good end as in FlushUnlessPreempted. A second call does nothing.
void ReportEnd(ControlStream& stream, WorkerEnd& end);

// Waits until every report is durable, at most `timeout`. A preempted worker, whose checkpoint is
// written, must end soon. It waits for 2 s at most, even if the coordinator hangs or cannot write
// its store.
absl::Status FlushUnlessPreempted(ControlStream& stream, absl::Duration timeout);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_WORKER_END_H_
