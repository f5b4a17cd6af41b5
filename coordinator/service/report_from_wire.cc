// Workers' reports: from the wire to the cluster's plain values.
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "common/status/code_name.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

cluster::StepDone FromWire(v1::StepMetrics step) {
  // A step with one of these fields would look like a pass.
  step.clear_validation();
  step.clear_test();
  return {step.step(), step.skipped(), step.SerializeAsString()};
}

cluster::Validated FromWire(const v1::Validated& validated) {
  v1::StepMetrics metrics;
  metrics.set_step(validated.step());
  const bool test = validated.has_test();
  v1::Evaluation& pass = test ? *metrics.mutable_test() : *metrics.mutable_validation();
  pass = test ? validated.test() : validated.validation();
  if (!test && !validated.has_validation()) {
    pass.set_loss(validated.loss());
    pass.set_samples(validated.samples());
    if (validated.has_accuracy()) pass.set_accuracy(validated.accuracy());
    if (validated.has_perplexity()) pass.set_perplexity(validated.perplexity());
  }
  using Data = cluster::Validated::Data;
  cluster::Validated result{.step = validated.step(),
                            .metrics = metrics.SerializeAsString(),
                            .summary = "",
                            .data = test ? Data::kTest : Data::kValidation};
  pass.clear_classes();
  result.summary = metrics.SerializeAsString();
  return result;
}

cluster::CheckpointWritten FromWire(const v1::CheckpointWritten& written) {
  return {.step = written.step(),
          .path = written.path(),
          .bytes = written.bytes(),
          .stall = absl::Seconds(written.stall_seconds()),
          .write_time = absl::Seconds(written.write_seconds()),
          .best = written.best()};
}

cluster::CommandFinished FromWire(const v1::CommandFinished& finished) {
  cluster::CommandFinished result{.number = finished.number()};
  if (finished.has_error()) {
    result.outcome.code = CodeFromName(finished.error().code());
    result.outcome.reason = finished.error().reason();
    result.outcome.message = finished.error().message();
  } else {
    result.outcome.result = finished.result().SerializeAsString();
  }
  return result;
}

cluster::TrainabilityReport FromWire(const v1::TrainabilityInForce& report) {
  cluster::TrainabilityReport result{.version = report.version()};
  v1::TrainabilityInForce in_force = report;
  in_force.clear_parameters();
  in_force.clear_change();
  result.in_force = in_force.SerializeAsString();
  if (!report.parameters().empty()) {
    v1::TrainabilityInForce parameters;
    *parameters.mutable_parameters() = report.parameters();
    result.parameters = parameters.SerializeAsString();
  }
  if (report.has_change()) {
    jobs::TrainabilityChange& change = result.change.emplace();
    v1::TrainabilityChange contents = report.change();
    change.version = report.version();
    // A worker sends the command's number as text.
    (void)absl::SimpleAtoi(contents.operation(), &change.command);
    contents.clear_operation();
    change.contents = contents.SerializeAsString();
  }
  return result;
}

// Returns the reason code of a worker's failure; empty for a kind that this program does not know.
std::string FailureCode(const v1::WorkerFailure& failure) {
  if (failure.kind() == v1::WorkerFailure::KIND_UNSPECIFIED) return "";
  return v1::WorkerFailure::Kind_Name(failure.kind());
}

}  // namespace

cluster::Report FromWire(const v1::WorkerReport& report) {
  cluster::Report result{.sequence = report.sequence()};
  switch (report.kind_case()) {
    case v1::WorkerReport::kRendezvous:
      result.what = jobs::Rendezvous{report.rendezvous().host(), report.rendezvous().port()};
      break;
    case v1::WorkerReport::kSessionStarted:
      result.what = cluster::SessionStarted{
          report.session_started().step(), report.session_started().checkpoint_path(),
          report.session_started().last_command(), report.session_started().total_steps()};
      break;
    case v1::WorkerReport::kStep:
      result.what = FromWire(report.step());
      break;
    case v1::WorkerReport::kStageStarted:
      result.what =
          cluster::StageStarted{report.stage_started().stage(), report.stage_started().step()};
      break;
    case v1::WorkerReport::kStageFinished:
      result.what = cluster::StageFinished{report.stage_finished().stages_done(),
                                           report.stage_finished().step()};
      break;
    case v1::WorkerReport::kValidated:
      result.what = FromWire(report.validated());
      break;
    case v1::WorkerReport::kCheckpointWritten:
      result.what = FromWire(report.checkpoint_written());
      break;
    case v1::WorkerReport::kCheckpointFailed:
      result.what = cluster::CheckpointFailed{report.checkpoint_failed().step(),
                                              report.checkpoint_failed().reason()};
      break;
    case v1::WorkerReport::kCheckpointBad:
      result.what =
          cluster::CheckpointBad{report.checkpoint_bad().path(), report.checkpoint_bad().reason()};
      break;
    case v1::WorkerReport::kCheckpointsFound: {
      cluster::CheckpointsFound found;
      for (const auto& one : report.checkpoints_found().found()) {
        found.found.push_back({.step = one.step(),
                               .generation = one.generation(),
                               .path = one.path(),
                               .adopted = one.adopted(),
                               .reason = one.reason()});
      }
      result.what = std::move(found);
      break;
    }
    case v1::WorkerReport::kCheckpointsRemoved: {
      const auto& names = report.checkpoints_removed().names();
      result.what = cluster::CheckpointsRemoved{{names.begin(), names.end()}};
      break;
    }
    case v1::WorkerReport::kCommandApplied:
      result.what = cluster::CommandApplied{report.command_applied().number(),
                                            report.command_applied().step()};
      break;
    case v1::WorkerReport::kCommandFinished:
      result.what = FromWire(report.command_finished());
      break;
    case v1::WorkerReport::kTrainability:
      result.what = FromWire(report.trainability());
      break;
    case v1::WorkerReport::kExportReady:
      result.what = cluster::ExportReady{report.export_ready().path()};
      break;
    case v1::WorkerReport::kNotice:
      result.what = cluster::Notice{report.notice().reason(), report.notice().message(),
                                    report.notice().step()};
      break;
    case v1::WorkerReport::kExported:
      result.what = cluster::Exported{report.exported().path()};
      break;
    case v1::WorkerReport::kFinished:
      result.what = cluster::Finished{report.finished().step(), report.finished().ended_early(),
                                      report.finished().preempted()};
      break;
    case v1::WorkerReport::kRanksJoined: {
      cluster::RanksJoined joined;
      for (const auto& rank : report.ranks_joined().ranks()) {
        joined.since[rank.rank()] = rank.since_step();
      }
      result.what = std::move(joined);
      break;
    }
    case v1::WorkerReport::kFailure: {
      const v1::WorkerFailure& failure = report.failure();
      const bool stale_epoch = failure.kind() == v1::WorkerFailure::STALE_EPOCH;
      result.what = jobs::ReportedFailure{
          .step = failure.step(),
          .reason = failure.reason(),
          .consequence = failure.consequence(),
          .permanent = failure.permanent(),
          .code = FailureCode(failure),
          .checkpoints_unreadable = failure.kind() == v1::WorkerFailure::CHECKPOINTS_UNREADABLE,
          .newer_generation = stale_epoch ? failure.epoch_found() : 0,
          .node_fault = failure.kind() == v1::WorkerFailure::NODE_FAULT};
      break;
    }
    case v1::WorkerReport::KIND_NOT_SET:
      break;
  }
  return result;
}

}  // namespace muster::service
