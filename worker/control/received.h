// The coordinator's messages to this worker over all its streams. Pure.
#ifndef MUSTER_WORKER_CONTROL_RECEIVED_H_
#define MUSTER_WORKER_CONTROL_RECEIVED_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/muster/v1/worker_service.pb.h"

namespace muster::control {

// The received messages. The stream guards this object.
struct Received {
  // The first welcome says what to run, and never changes.
  std::optional<v1::WorkerWelcome> first_welcome;
  std::optional<v1::Rendezvous> rendezvous;
  // The path of the granted export; empty: none yet.
  std::string granted_export;
  // The command log from its beginning: numbers 1 to size().
  std::vector<v1::Command> commands;
  bool preempted = false;

  // Takes in a directive. Acknowledgements, and commands that are not the next one, have no effect.
  void Take(const v1::WorkerDirective& directive);
  // True if the first welcome and all commands that the log had at that time have arrived.
  bool complete() const {
    return first_welcome.has_value() && commands.size() >= first_welcome->newest_command();
  }
};

// The place of this job's files for clients (common/downloads).
struct Downloads {
  std::string folder;  // empty: there is none
  std::string job_id;
};

// Returns the command as this node carries it out. A file for a client gets its path on this node,
// or an empty path if there is no folder for such files.
v1::Command CommandFromWire(v1::Command command, const Downloads& downloads = {});

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_RECEIVED_H_
