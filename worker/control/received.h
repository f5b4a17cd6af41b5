// What the coordinator has sent to this worker over all its streams. Pure; the stream guards it.
#ifndef MUSTER_WORKER_CONTROL_RECEIVED_H_
#define MUSTER_WORKER_CONTROL_RECEIVED_H_

#include <optional>
#include <string>
#include <vector>

#include "proto/muster/v1/worker_service.pb.h"

namespace muster::control {

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

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_RECEIVED_H_
