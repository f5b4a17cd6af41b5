// Converts a train::Event to a v1::WorkerReport.
#ifndef MUSTER_WORKER_CONTROL_REPORT_FROM_EVENT_H_
#define MUSTER_WORKER_CONTROL_REPORT_FROM_EVENT_H_

#include "proto/muster/v1/worker_service.pb.h"
#include "worker/train/outside.h"

namespace muster::control {

v1::WorkerReport ReportFromEvent(const train::Event& event, int64_t generation);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_REPORT_FROM_EVENT_H_
