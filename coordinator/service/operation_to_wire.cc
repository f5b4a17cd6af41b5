// Commands as operations.
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/code_name.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

// Returns the ranks' progress with the command's file; all 0 if no rank is writing it.
membership::FileWriting WritingOf(const jobs::Job& job, const commands::Command& command,
                                  const cluster::Cluster& cluster) {
  membership::FileWriting all{.command = command.number};
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    const membership::Worker* worker = cluster.membership().FindWorker(job.id, rank);
    if (worker == nullptr || !worker->writing.has_value()) continue;
    if (worker->writing->command != command.number) continue;
    all.total_bytes += worker->writing->total_bytes;
    all.written_bytes += worker->writing->written_bytes;
  }
  return all;
}

std::string Progress(const jobs::Job& job, const commands::Command& command,
                     const membership::FileWriting& writing) {
  if (command.outcome.has_value()) {
    return command.outcome->code == absl::StatusCode::kOk ? "done" : "failed";
  }
  if (command.applied_step.has_value()) {
    std::string text = absl::StrCat("under way since step ", *command.applied_step);
    if (writing.total_bytes > 0) {
      absl::StrAppendFormat(&text, "; %d%% of %.1f MB are written",
                            100 * writing.written_bytes / writing.total_bytes,
                            static_cast<double>(writing.total_bytes) / 1e6);
    }
    return text;
  }
  if (command.at_step.has_value() && job.step < *command.at_step) {
    return absl::StrCat("waits for step ", *command.at_step);
  }
  if (!job.live() || job.state() == jobs::State::kStarting) {
    return absl::StrCat("waits for the job, which is ", jobs::Name(job.state()));
  }
  return "waits for the next step";
}

}  // namespace

std::string OperationName(const std::string& job_id, uint64_t number) {
  return absl::StrCat(job_id, "/", number);
}

absl::StatusOr<OperationId> ParseOperationName(const std::string& name) {
  const size_t slash = name.find('/');
  OperationId id;
  if (slash == std::string::npos || slash == 0 ||
      !absl::SimpleAtoi(name.substr(slash + 1), &id.number)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "OPERATION_NAME_INVALID",
                  absl::StrCat("'", name, "' is not the name of an operation: expected JOB/NUMBER"),
                  {{"field", "name"}});
  }
  id.job_id = name.substr(0, slash);
  return id;
}

v1::Operation ToWire(const jobs::Job& job, const commands::Command& command,
                     const cluster::Cluster& cluster) {
  v1::Operation out;
  out.set_name(OperationName(job.id, command.number));
  out.set_job(job.id);
  out.set_kind(command.kind);
  out.set_done(command.outcome.has_value());
  membership::FileWriting writing;
  if (!command.outcome.has_value()) writing = WritingOf(job, command, cluster);
  out.set_progress(Progress(job, command, writing));
  out.set_bytes_to_write(writing.total_bytes);
  out.set_bytes_written(writing.written_bytes);
  if (command.applied_step.has_value()) out.set_applied_at_step(*command.applied_step);
  if (const auto& outcome = command.outcome; outcome.has_value()) {
    if (outcome->code == absl::StatusCode::kOk) {
      out.mutable_result()->ParseFromString(outcome->result);
    } else {
      out.mutable_error()->set_code(CodeName(outcome->code));
      out.mutable_error()->set_reason(outcome->reason);
      out.mutable_error()->set_message(outcome->message);
    }
    Set(out.mutable_end_time(), outcome->time);
  }
  if (command.at_step.has_value()) out.set_at_step(*command.at_step);
  out.set_requested_by(command.requested_by);
  out.set_requester(command.requester);
  if (command.create_time != absl::InfinitePast()) {
    Set(out.mutable_create_time(), command.create_time);
  }
  if (command.kind == v1::Operation::CANCEL) out.set_target(OperationName(job.id, command.target));
  return out;
}

}  // namespace muster::service
