#include "worker/control/received.h"

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

}  // namespace muster::control
