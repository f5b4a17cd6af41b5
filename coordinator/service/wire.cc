#include "coordinator/service/wire.h"

#include <algorithm>

#include "common/rpc/error.h"
#include "common/rpc/proto_time.h"
#include "common/status/code_name.h"
#include "common/version/protocol.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

// The most collectives that are taken from a heartbeat.
constexpr size_t kMostCollectives = 64;

void Set(google::protobuf::Duration* out, absl::Duration value) { *out = ToProto(value); }

void Set(v1::WorkerIdentity* out, const cluster::WorkerId& id) {
  out->set_job_id(id.job);
  out->set_generation(id.generation);
  out->set_rank(id.rank);
  out->set_incarnation(id.incarnation);
}

void Set(v1::Rendezvous* out, const jobs::Rendezvous& rendezvous) {
  out->set_host(rendezvous.host);
  out->set_port(rendezvous.port);
}

// Sets the timing of a Welcome.
template <typename Message>
void SetTiming(Message* out, const membership::Timing& timing) {
  Set(out->mutable_heartbeat_interval(), timing.Heartbeat());
  Set(out->mutable_lease(), timing.lease);
  Set(out->mutable_lease_margin(), timing.Margin());
  Set(out->mutable_autonomy(), timing.autonomy);
}

// One function for each order.
struct AgentOrderToWire {
  v1::AgentDirective* out;
  void operator()(const cluster::WelcomeAgent& welcome) {
    auto* message = out->mutable_welcome();
    SetTiming(message, welcome.timing);
    message->set_protocol(kAgentProtocol);
  }
  void operator()(const cluster::StartWorker& start) {
    Set(out->mutable_start_worker()->mutable_worker(), start.worker);
    out->mutable_start_worker()->set_slot(start.slot);
    out->mutable_start_worker()->set_continue_when_cut_off(start.continue_when_cut_off);
    out->mutable_start_worker()->set_threads(start.threads);
  }
  void operator()(const cluster::StopWorker& stop) {
    Set(out->mutable_stop_worker()->mutable_worker(), stop.worker);
    Set(out->mutable_stop_worker()->mutable_grace(), stop.grace);
  }
  void operator()(const cluster::AckSpool& ack) {
    Set(out->mutable_spooled_reports_ack()->mutable_worker(), ack.worker);
    out->mutable_spooled_reports_ack()->set_sequence(ack.sequence);
  }
  void operator()(const cluster::DrainAgent& drain) {
    out->mutable_drain()->set_drain(drain.drain);
    out->mutable_drain()->set_reason(drain.reason);
    if (drain.deadline.has_value()) Set(out->mutable_drain()->mutable_deadline(), *drain.deadline);
  }
  void operator()(const cluster::AckExit& ack) {
    Set(out->mutable_worker_exit_ack()->mutable_worker(), ack.worker);
  }
  void operator()(const cluster::SendDownload& send) {
    out->mutable_send_download()->set_transfer(send.transfer);
    out->mutable_send_download()->set_job_id(send.job);
    out->mutable_send_download()->set_command(send.command);
    out->mutable_send_download()->set_bytes(send.bytes);
    out->mutable_send_download()->set_offset(send.offset);
  }
  void operator()(const cluster::RemoveDownload& remove) {
    out->mutable_remove_download()->set_job_id(remove.job);
    out->mutable_remove_download()->set_command(remove.command);
  }
};

struct WorkerOrderToWire {
  v1::WorkerDirective* out;
  void operator()(const cluster::WelcomeWorker& welcome) {
    auto* message = out->mutable_welcome();
    message->mutable_spec()->ParseFromString(welcome.spec);
    service::Set(message->mutable_job_create_time(), welcome.job_create_time);
    SetTiming(message, welcome.timing);
    message->set_protocol(kWorkerProtocol);
    Set(message->mutable_collective_timeout(),
        welcome.timing.CollectiveTimeout(welcome.progress_limits));
    for (const jobs::Checkpoint& checkpoint : welcome.checkpoints) {
      auto* added = message->add_checkpoints();
      added->set_step(checkpoint.step);
      added->set_generation(checkpoint.generation);
      added->set_path(checkpoint.path);
    }
    for (const jobs::Checkpoint& checkpoint : welcome.known_checkpoints) {
      auto* added = message->add_known_checkpoints();
      added->set_step(checkpoint.step);
      added->set_generation(checkpoint.generation);
      added->set_path(checkpoint.path);
      added->set_bad_reason(checkpoint.bad_reason);
    }
    message->set_from_scratch(welcome.from_scratch);
    message->set_start_from(welcome.start_from);
    message->set_learning_rate_since(welcome.learning_rate_since);
    message->set_stages_done(static_cast<uint32_t>(welcome.stages_done));
    message->set_stages_done_step(welcome.stages_done_step);
    message->set_acked_sequence(welcome.acked_report);
    if (welcome.rendezvous.has_value()) Set(message->mutable_rendezvous(), *welcome.rendezvous);
    message->set_host(welcome.host);
    message->set_node(welcome.node);
    message->set_newest_command(welcome.newest_command);
  }
  void operator()(const jobs::Rendezvous& rendezvous) {
    Set(out->mutable_rendezvous(), rendezvous);
  }
  void operator()(const commands::Delivery& delivery) {
    const commands::Command& command = delivery.command;
    v1::Command* message = out->mutable_command();
    if (delivery.when == commands::Delivery::When::kNever) {
      message->mutable_none();
    } else {
      message->ParseFromString(command.contents);
      // The coordinator's own stop at a time limit has no contents.
      if (command.kind == v1::Operation::STOP) message->mutable_stop();
      if (delivery.at_step.has_value()) message->set_at_step(*delivery.at_step);
      message->set_begun(command.applied_step.has_value());
    }
    if (delivery.when == commands::Delivery::When::kReplay && command.outcome.has_value() &&
        !command.outcome->result.empty()) {
      message->mutable_first_result()->ParseFromString(command.outcome->result);
    }
    message->set_number(command.number);
    message->set_replay(delivery.when == commands::Delivery::When::kReplay);
  }
  void operator()(const cluster::AckReport& ack) {
    out->mutable_report_ack()->set_sequence(ack.sequence);
  }
  void operator()(const cluster::PreemptionNotice& notice) {
    out->mutable_preemption_notice()->set_reason(notice.reason);
  }
  void operator()(const cluster::CheckpointRecorded& recorded) {
    auto* message = out->mutable_checkpoint_recorded();
    message->set_step(recorded.step);
    message->set_path(recorded.path);
    for (const std::string& path : recorded.remove) {
      message->add_remove_names(path.substr(path.rfind('/') + 1));
    }
  }
  void operator()(const cluster::ExportGranted& granted) {
    out->mutable_export_granted()->set_path(granted.path);
  }
};

}  // namespace

void Set(google::protobuf::Timestamp* out, absl::Time value) { *out = ToProto(value); }

grpc::Status ToWire(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string reason = RefusalReason(status);
  About about = AboutOf(status);
  if (reason.empty() && !ErrorReason(status).empty()) {
    // Errors of common/rpc have their reason here.
    reason = ErrorReason(status);
    about = ErrorMetadata(status);
  }
  if (reason.empty()) reason = CodeName(status.code());
  about["next"] = NextStep(reason);
  absl::Status error = MakeError(status.code(), reason, std::string(status.message()), about);
  if (const v1::SpecProblems problems = Problems(status); problems.problems_size() > 0) {
    AttachProblems(&error, problems);
  }
  return ToGrpc(error);
}

grpc::Status ToWire(const absl::Status& status, const std::string& job_id) {
  return ToWire(job_id.empty() ? status : With(status, {{"job", job_id}}));
}

cluster::WorkerId FromWire(const v1::WorkerIdentity& worker) {
  return {worker.job_id(), worker.generation(), worker.rank(), worker.incarnation()};
}

cluster::RunningWorker FromWire(const v1::RunningWorker& worker) {
  return {FromWire(worker.worker()), worker.pid()};
}

cluster::WorkerExit FromWire(const v1::WorkerExit& exit) {
  cluster::WorkerExit result{.worker = FromWire(exit.worker()), .pid = exit.pid()};
  result.exit.log_tail = exit.log_tail();
  // A cause that this program does not know counts as unknown.
  if (v1::WorkerExit::Cause_IsValid(exit.planned())) {
    result.exit.why = static_cast<jobs::Exit::Why>(exit.planned());
  }
  switch (exit.cause_case()) {
    case v1::WorkerExit::kSignal:
      result.exit.cause = jobs::Exit::Cause::kSignal;
      result.exit.number = exit.signal();
      break;
    case v1::WorkerExit::kStartError:
      result.exit.cause = jobs::Exit::Cause::kStartError;
      result.exit.start_error = exit.start_error();
      break;
    case v1::WorkerExit::kExitCode:
    case v1::WorkerExit::CAUSE_NOT_SET:
      result.exit.number = exit.exit_code();
      break;
  }
  return result;
}

cluster::SlotQuarantine FromWire(const v1::SlotQuarantine& quarantine) {
  return {.slot = quarantine.slot(),
          .worker = FromWire(quarantine.worker()),
          .pid = quarantine.pid(),
          .quarantined = quarantine.quarantined(),
          .reason = quarantine.reason()};
}

cluster::AgentHello FromWire(const v1::AgentHello& hello) {
  cluster::AgentHello result{.node = hello.node(),
                             .incarnation = hello.incarnation(),
                             .host = hello.host(),
                             .slots = hello.slots(),
                             .version = hello.version(),
                             .protocol = hello.protocol(),
                             .agent_id = hello.agent_id()};
  for (const auto& worker : hello.running()) result.running.push_back(FromWire(worker));
  for (const auto& exit : hello.exits()) result.exits.push_back(FromWire(exit));
  for (const auto& quarantine : hello.quarantined()) {
    result.quarantined_slots.push_back(quarantine.slot());
  }
  for (const auto& gpu : hello.gpus()) {
    result.gpus.push_back({gpu.index(), gpu.uuid(), gpu.name(), gpu.memory_bytes()});
  }
  if (hello.has_draining()) {
    const std::string& reason = hello.draining().reason();
    result.draining = reason.empty() ? "the agent gives no reason" : reason;
  }
  return result;
}

cluster::WorkerHello FromWire(const v1::WorkerHello& hello) {
  return {.worker = FromWire(hello.worker()),
          .pid = hello.pid(),
          .newest_command = hello.newest_command(),
          .acked_report = hello.acked_report(),
          .protocol = hello.protocol()};
}

cluster::Heartbeat FromWire(const v1::WorkerHeartbeat& heartbeat) {
  cluster::Heartbeat result{.step = heartbeat.step(),
                            .progress = heartbeat.progress(),
                            .trouble = heartbeat.trouble(),
                            .stage = heartbeat.stage(),
                            .activity = heartbeat.activity(),
                            .collectives = {.begun = heartbeat.collectives_begun(),
                                            .ended = heartbeat.collectives_ended()},
                            .memory = heartbeat.memory().SerializeAsString()};
  if (const v1::FileWriting& writing = heartbeat.writing(); writing.total_bytes() > 0) {
    result.writing = {.command = writing.command(),
                      .total_bytes = writing.total_bytes(),
                      .written_bytes = std::min(writing.written_bytes(), writing.total_bytes())};
  }
  for (const v1::CollectiveRecord& record : heartbeat.collectives()) {
    if (result.collectives.newest.size() == kMostCollectives) break;
    result.collectives.newest.push_back({record.sequence(), record.name(), record.ended(),
                                         record.communicator(), record.communicator_sequence()});
  }
  return result;
}

v1::AgentDirective ToWire(const cluster::AgentOrder& order) {
  v1::AgentDirective directive;
  std::visit(AgentOrderToWire{&directive}, order);
  return directive;
}

v1::WorkerDirective ToWire(const cluster::WorkerOrder& order) {
  v1::WorkerDirective directive;
  std::visit(WorkerOrderToWire{&directive}, order);
  return directive;
}

v1::LogLine ToWire(const store::LogRow& line) {
  v1::LogLine message;
  message.set_sequence(line.sequence);
  message.set_generation(line.generation);
  message.set_rank(line.rank);
  message.set_text(line.text);
  return message;
}

}  // namespace muster::service
