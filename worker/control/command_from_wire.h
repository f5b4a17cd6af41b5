#ifndef MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_
#define MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_

#include "proto/muster/v1/worker_service.pb.h"
#include "worker/train/outside.h"

namespace muster::control {

// A command of a kind that this program does not know, because a newer coordinator sent it, becomes
// a train::NoCommand.
train::Command CommandFromWire(const v1::Command& command);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_
