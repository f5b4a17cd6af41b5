// Converts a train::Event to a v1::WorkerReport.
#ifndef MUSTER_WORKER_CONTROL_REPORT_FROM_EVENT_H_
#define MUSTER_WORKER_CONTROL_REPORT_FROM_EVENT_H_

#include <cstdint>
#include <string>

#include "proto/muster/v1/worker_service.pb.h"
#include "worker/train/reports/coordinator_interface.h"

namespace muster::control {

// `node`: this node's name.
v1::WorkerReport ReportFromEvent(const train::Event& event, int64_t generation,
                                 const std::string& node);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_REPORT_FROM_EVENT_H_
