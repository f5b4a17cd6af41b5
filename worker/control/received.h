// What the coordinator has sent to this worker over all its streams. Pure.
#ifndef MUSTER_WORKER_CONTROL_RECEIVED_H_
#define MUSTER_WORKER_CONTROL_RECEIVED_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/muster/v1/worker_service.pb.h"

namespace muster::control {

// The stream guards it.
struct Received {
  // It says what to run, and never changes.
  std::optional<v1::WorkerWelcome> first_welcome;
  std::optional<v1::Rendezvous> rendezvous;
  // The path of the export that was granted; empty: none yet.
  std::string granted_export;
  // The command log from its beginning: numbers 1 to size().
  std::vector<v1::Command> commands;
  bool preempted = false;

  // Acknowledgements have no effect here, and neither has a command that is not the next one.
  void Take(const v1::WorkerDirective& directive);
  // The first welcome is here, and so are all commands that the log had at that time.
  bool complete() const {
    return first_welcome.has_value() && commands.size() >= first_welcome->newest_command();
  }
};

// Where this job's files for clients lie (common/downloads).
struct Downloads {
  std::string folder;  // empty: there is none
  std::string job_id;
};

// The command as this node carries it out: as it was sent, except that a file for a client gets its
// path on this node, an empty one if there is no folder for it.
v1::Command CommandFromWire(v1::Command command, const Downloads& downloads = {});

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_RECEIVED_H_
