#include "worker/agent/wire.h"

#include <algorithm>
#include <utility>

#include "common/rpc/proto_time.h"

namespace muster::agent {
namespace {

v1::SlotQuarantine ToWire(const SendQuarantine& quarantine) {
  v1::SlotQuarantine wire;
  wire.set_slot(quarantine.slot);
  *wire.mutable_worker() = agent::ToWire(quarantine.worker.worker);
  wire.set_pid(quarantine.worker.pid);
  wire.set_quarantined(quarantine.quarantined);
  if (quarantine.quarantined) {
    wire.set_reason("it was sent SIGKILL and does not end: it hangs in the kernel");
  }
  return wire;
}

void SetCause(const ExitCode& cause, v1::WorkerExit& wire) { wire.set_exit_code(cause.code); }
void SetCause(const ExitSignal& cause, v1::WorkerExit& wire) { wire.set_signal(cause.signal); }
void SetCause(const StartError& cause, v1::WorkerExit& wire) { wire.set_start_error(cause.reason); }

}  // namespace

v1::Gpu ToWire(const Gpu& gpu) {
  v1::Gpu wire;
  wire.set_index(gpu.index);
  wire.set_uuid(gpu.uuid);
  wire.set_name(gpu.name);
  wire.set_memory_bytes(gpu.memory_bytes);
  return wire;
}

v1::WorkerIdentity ToWire(const WorkerId& worker) {
  v1::WorkerIdentity wire;
  wire.set_job_id(worker.job);
  wire.set_generation(worker.generation);
  wire.set_rank(worker.rank);
  wire.set_incarnation(worker.incarnation);
  return wire;
}

WorkerId FromWire(const v1::WorkerIdentity& wire) {
  return {.job = wire.job_id(),
          .generation = wire.generation(),
          .rank = wire.rank(),
          .incarnation = wire.incarnation()};
}

v1::WorkerExit ToWire(const EndedWorker& worker) {
  v1::WorkerExit wire;
  *wire.mutable_worker() = ToWire(worker.worker);
  wire.set_pid(worker.pid);
  std::visit([&wire](const auto& cause) { SetCause(cause, wire); }, worker.ending);
  wire.set_log_tail(worker.log_tail);
  wire.set_planned(static_cast<v1::WorkerExit::Cause>(worker.cause));
  return wire;
}

v1::AgentMessage ToMessage(const SendHeartbeat& heartbeat) {
  v1::AgentMessage message;
  message.mutable_heartbeat()->set_sequence(heartbeat.sequence);
  return message;
}

v1::AgentMessage ToMessage(const SendDraining& draining) {
  v1::AgentMessage message;
  message.mutable_draining()->set_reason(draining.reason);
  return message;
}

v1::AgentMessage ToMessage(const SendQuarantine& quarantine) {
  v1::AgentMessage message;
  *message.mutable_slot_quarantine() = ToWire(quarantine);
  return message;
}

v1::AgentMessage ToMessage(const SendStarted& started) {
  v1::AgentMessage message;
  *message.mutable_worker_started()->mutable_worker() = ToWire(started.worker.worker);
  message.mutable_worker_started()->set_pid(started.worker.pid);
  return message;
}

v1::AgentMessage ToMessage(const SendExit& exit) {
  v1::AgentMessage message;
  *message.mutable_worker_exit() = ToWire(exit.worker);
  return message;
}

v1::AgentMessage ToMessage(LogQueue::Batch batch) {
  v1::AgentMessage message;
  *message.mutable_worker_log()->mutable_worker() = ToWire(batch.worker);
  for (std::string& line : batch.lines) message.mutable_worker_log()->add_lines(std::move(line));
  return message;
}

v1::AgentMessage ToMessage(const SendHello& hello) {
  v1::AgentMessage message;
  v1::AgentHello* wire = message.mutable_hello();
  for (const RunningWorker& running : hello.running) {
    v1::RunningWorker* entry = wire->add_running();
    *entry->mutable_worker() = ToWire(running.worker);
    entry->set_pid(running.pid);
  }
  size_t room = kHelloTailBytes;
  for (const EndedWorker& exit : hello.exits) {
    v1::WorkerExit* entry = wire->add_exits();
    *entry = ToWire(exit);
    // The job's log has these lines, too.
    if (entry->log_tail().size() > room) entry->clear_log_tail();
    room -= entry->log_tail().size();
  }
  if (hello.draining.has_value()) wire->mutable_draining()->set_reason(hello.draining->reason);
  for (const SendQuarantine& quarantine : hello.quarantined) {
    *wire->add_quarantined() = ToWire(quarantine);
  }
  return message;
}

std::optional<Event> ToEvent(const v1::AgentDirective& directive) {
  switch (directive.kind_case()) {
    case v1::AgentDirective::kWelcome: {
      const v1::AgentWelcome& welcome = directive.welcome();
      return Welcomed{.heartbeat_interval = FromProto(welcome.heartbeat_interval()),
                      .lease = {.lease = FromProto(welcome.lease()),
                                .margin = FromProto(welcome.lease_margin()),
                                .autonomy = FromProto(welcome.autonomy())}};
    }
    case v1::AgentDirective::kHeartbeatAck:
      return HeartbeatAcked{.sequence = directive.heartbeat_ack().sequence(),
                            .workers_activity = directive.heartbeat_ack().workers_activity()};
    case v1::AgentDirective::kStartWorker:
      return StartRequested{
          .worker = FromWire(directive.start_worker().worker()),
          .slot = directive.start_worker().slot(),
          .continue_when_cut_off = directive.start_worker().continue_when_cut_off(),
          .threads = std::max(directive.start_worker().threads(), 1u),
          .secret = directive.start_worker().secret()};
    case v1::AgentDirective::kStopWorker:
      return StopRequested{.worker = FromWire(directive.stop_worker().worker()),
                           .grace = FromProto(directive.stop_worker().grace())};
    case v1::AgentDirective::kWorkerExitAck:
      return ExitAcked{FromWire(directive.worker_exit_ack().worker())};
    case v1::AgentDirective::kDrain: {
      const v1::DrainAgent& drain = directive.drain();
      DrainRequested event{.drain = drain.drain(), .reason = drain.reason()};
      if (drain.has_deadline()) event.deadline = FromProto(drain.deadline());
      return event;
    }
    case v1::AgentDirective::kSpooledReportsAck:
    case v1::AgentDirective::kSendDownload:
    case v1::AgentDirective::kRemoveDownload:
    case v1::AgentDirective::KIND_NOT_SET:
      break;
  }
  return std::nullopt;
}

}  // namespace muster::agent
