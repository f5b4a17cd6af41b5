#ifndef MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_
#define MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_

#include <string>

#include "proto/muster/v1/worker_service.pb.h"
#include "worker/train/reports/outside.h"

namespace muster::control {

// Where this job's files for clients lie (common/downloads).
struct Downloads {
  std::string folder;  // empty: there is none
  std::string job_id;
};

// A command of a kind that this program does not know, because a newer coordinator sent it, becomes
// a train::NoCommand.
train::Command CommandFromWire(const v1::Command& command, const Downloads& downloads = {});

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_
