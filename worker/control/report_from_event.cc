#include "worker/control/report_from_event.h"

#include <cmath>

#include "common/utf8/utf8.h"

namespace muster::control {
namespace {

struct Fill {
  v1::WorkerReport& report;
  const int64_t generation;

  void operator()(const train::SessionStarted& event) const {
    report.mutable_session_started()->set_step(event.step);
    report.mutable_session_started()->set_checkpoint_path(event.checkpoint_path);
  }
  void operator()(const train::StageStarted& event) const {
    report.mutable_stage_started()->set_stage(event.stage);
    report.mutable_stage_started()->set_step(event.step);
  }
  void operator()(const train::StepFinished& event) const {
    v1::StepMetrics& step = *report.mutable_step();
    step.set_step(event.step);
    step.set_loss(event.loss);
    step.set_learning_rate(event.learning_rate);
    if (event.grad_norm.has_value()) step.set_grad_norm(*event.grad_norm);
    step.set_samples(event.samples);
    const double whole = std::floor(event.seconds);
    step.mutable_duration()->set_seconds(static_cast<int64_t>(whole));
    step.mutable_duration()->set_nanos(static_cast<int32_t>((event.seconds - whole) * 1e9));
    step.set_generation(generation);
    if (event.perplexity.has_value()) step.set_perplexity(*event.perplexity);
    if (event.tokens.has_value()) step.set_tokens(*event.tokens);
    if (event.model_flops.has_value() && event.seconds > 0) {
      step.set_model_flops_per_second(*event.model_flops / event.seconds);
    }
    step.set_skipped(event.skipped);
    if (event.loss_scale.has_value()) step.set_loss_scale(*event.loss_scale);
  }
  void operator()(const train::Validated& event) const {
    v1::Validated& validated = *report.mutable_validated();
    validated.set_step(event.step);
    validated.set_loss(event.loss);
    validated.set_samples(event.samples);
    if (event.accuracy.has_value()) validated.set_accuracy(*event.accuracy);
    if (event.perplexity.has_value()) validated.set_perplexity(*event.perplexity);
  }
  void operator()(const train::CheckpointWritten& event) const {
    report.mutable_checkpoint_written()->set_step(event.step);
    report.mutable_checkpoint_written()->set_path(event.path);
  }
  void operator()(const train::CheckpointFailed& event) const {
    report.mutable_checkpoint_failed()->set_step(event.step);
    report.mutable_checkpoint_failed()->set_reason(ValidUtf8(event.reason));
  }
  void operator()(const train::CheckpointBad& event) const {
    report.mutable_checkpoint_bad()->set_path(event.path);
    report.mutable_checkpoint_bad()->set_reason(ValidUtf8(event.reason));
  }
  void operator()(const train::CommandApplied& event) const {
    report.mutable_command_applied()->set_number(event.number);
    report.mutable_command_applied()->set_step(event.step);
  }
  void operator()(const train::Exported& event) const {
    report.mutable_exported()->set_path(event.path);
  }
};

}  // namespace

v1::WorkerReport ReportFromEvent(const train::Event& event, int64_t generation) {
  v1::WorkerReport report;
  std::visit(Fill{report, generation}, event);
  return report;
}

}  // namespace muster::control
