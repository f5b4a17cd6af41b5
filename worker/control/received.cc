#include "worker/control/received.h"

#include "common/downloads/downloads.h"

namespace muster::control {

void Received::Take(const v1::WorkerDirective& directive) {
  switch (directive.kind_case()) {
    case v1::WorkerDirective::kWelcome:
      if (!first_welcome.has_value()) first_welcome = directive.welcome();
      if (directive.welcome().has_rendezvous()) rendezvous = directive.welcome().rendezvous();
      break;
    case v1::WorkerDirective::kExportGranted:
      granted_export = directive.export_granted().path();
      break;
    case v1::WorkerDirective::kRendezvous:
      rendezvous = directive.rendezvous();
      break;
    case v1::WorkerDirective::kCommand:
      if (directive.command().number() == commands.size() + 1) {
        commands.push_back(directive.command());
      }
      break;
    case v1::WorkerDirective::kPreemptionNotice:
      preempted = true;
      break;
    case v1::WorkerDirective::kReportAck:
    case v1::WorkerDirective::kHeartbeatAck:
    case v1::WorkerDirective::kCheckpointRecorded:
    case v1::WorkerDirective::KIND_NOT_SET:
      break;
  }
}

v1::Command CommandFromWire(v1::Command command, const Downloads& downloads) {
  if (!command.gather_optimizer_state().file().download()) return command;
  v1::OptimizerStateFile& file = *command.mutable_gather_optimizer_state()->mutable_file();
  file.set_path(DownloadPath(downloads.folder, downloads.job_id, command.number()));
  // A file at this path belongs to a deleted job with this id, or to a killed generation that had
  // not reported the file.
  file.set_overwrite(true);
  return command;
}

}  // namespace muster::control
