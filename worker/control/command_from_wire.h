#ifndef MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_
#define MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_

#include <string>

#include "proto/muster/v1/worker_service.pb.h"

namespace muster::control {

// Where this job's files for clients lie (common/downloads).
struct Downloads {
  std::string folder;  // empty: there is none
  std::string job_id;
};

// The command as this node carries it out: as it was sent, except that a file for a client gets its
// path on this node, an empty one if there is no folder for it.
v1::Command CommandFromWire(v1::Command command, const Downloads& downloads = {});

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_COMMAND_FROM_WIRE_H_
