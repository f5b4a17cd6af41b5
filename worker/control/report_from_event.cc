#include "worker/control/report_from_event.h"

#include <string>
#include <variant>

#include "common/overloaded/overloaded.h"
#include "common/status/code_name.h"
#include "common/utf8/utf8.h"

namespace muster::control {
namespace {

// The number of names of a change that are sent. A change may concern many thousands of parameters.
constexpr size_t kShownNames = 20;

void Set(v1::TrainabilityChange* out, const train::TrainabilityChange& change) {
  out->set_version(change.version);
  out->set_step(change.step);
  if (change.command != 0) out->set_operation(std::to_string(change.command));
  for (size_t i = 0; i < change.frozen.size() && i < kShownNames; ++i) {
    out->add_frozen(ValidUtf8(change.frozen[i]));
  }
  for (size_t i = 0; i < change.unfrozen.size() && i < kShownNames; ++i) {
    out->add_unfrozen(ValidUtf8(change.unfrozen[i]));
  }
  out->set_frozen_count(change.frozen.size());
  out->set_unfrozen_count(change.unfrozen.size());
  out->set_trainable_params_before(change.trained_before);
  out->set_trainable_params(change.trained);
  out->set_bytes_moved(change.bytes_moved);
  out->set_seconds(change.seconds);
}

// Sends the numbers of a validation twice: a musterd that does not know `validation` reads the
// other fields.
void Set(v1::Validated* out, const v1::StepMetrics& pass) {
  out->set_step(pass.step());
  if (pass.has_test()) {
    *out->mutable_test() = pass.test();
    return;
  }
  const v1::Evaluation& validation = pass.validation();
  *out->mutable_validation() = validation;
  out->set_loss(validation.loss());
  out->set_samples(validation.samples());
  if (validation.has_accuracy()) out->set_accuracy(validation.accuracy());
  if (validation.has_perplexity()) out->set_perplexity(validation.perplexity());
}

// The counts by class are left out, because every GetJob contains the operation. The row of metrics
// has them.
void Set(v1::StageResult* out, const train::StageEvaluated& stage) {
  out->set_step(stage.step);
  out->set_stage(stage.stage);
  *out->mutable_evaluation() = stage.evaluation;
  out->mutable_evaluation()->clear_classes();
}

void Set(v1::SampleResult* out, const train::Sampled& sampled) {
  out->set_step(sampled.step);
  for (const int64_t token : sampled.prompt) out->add_prompt(static_cast<uint32_t>(token));
  for (const int64_t token : sampled.tokens) out->add_tokens(static_cast<uint32_t>(token));
  out->set_text(sampled.text);
}

struct Fill {
  v1::WorkerReport& report;
  const int64_t generation;
  const std::string& node;

  void operator()(const train::SessionStarted& event) const {
    report.mutable_session_started()->set_step(event.step);
    report.mutable_session_started()->set_checkpoint_path(event.checkpoint_path);
    report.mutable_session_started()->set_last_command(event.last_command);
    report.mutable_session_started()->set_total_steps(event.total_steps);
  }
  void operator()(const train::TrainabilityReport& event) const {
    v1::TrainabilityInForce& in_force = *report.mutable_trainability();
    in_force.set_version(event.version);
    for (const TrainableRule& rule : event.rules) {
      if (rule.freeze) {
        in_force.add_rules()->set_freeze(rule.pattern);
      } else {
        in_force.add_rules()->set_unfreeze(rule.pattern);
      }
    }
    in_force.set_trainable_params(event.trained);
    in_force.set_frozen_params(event.frozen);
    for (const std::string& name : event.pending) in_force.add_pending(ValidUtf8(name));
    for (const Trainability::Parameter& parameter : event.parameters) {
      v1::ModelParameter& added = *in_force.add_parameters();
      added.set_name(ValidUtf8(parameter.name));
      added.set_elements(parameter.elements);
      added.set_trained(parameter.trained);
      added.set_never_trained(!parameter.can_be_trained);
    }
    if (event.change.has_value()) Set(in_force.mutable_change(), *event.change);
  }
  void operator()(const train::CommandFinished& event) const {
    v1::CommandFinished& finished = *report.mutable_command_finished();
    finished.set_number(event.number);
    if (!event.status.ok()) {
      finished.mutable_error()->set_code(CodeName(event.status.code()));
      finished.mutable_error()->set_reason(event.reason);
      finished.mutable_error()->set_message(ValidUtf8(std::string(event.status.message())));
      return;
    }
    v1::OperationResult& result = *finished.mutable_result();
    std::visit(
        Overloaded{[](const std::monostate&) {},
                   [&](const train::CheckpointWritten& written) {
                     result.mutable_checkpoint()->set_step(written.step);
                     result.mutable_checkpoint()->set_path(written.path);
                     result.mutable_checkpoint()->set_generation(written.generation);
                     result.mutable_checkpoint()->set_bytes(written.bytes);
                     result.mutable_checkpoint()->set_stall_seconds(written.stall_seconds);
                     result.mutable_checkpoint()->set_write_seconds(written.seconds);
                     result.mutable_checkpoint()->set_best(written.best);
                   },
                   [&](const train::LearningRateSet& rate) {
                     result.mutable_learning_rate()->set_old_rate(rate.old_rate);
                     result.mutable_learning_rate()->set_new_rate(rate.new_rate);
                     result.mutable_learning_rate()->set_next_step(rate.next_step);
                   },
                   [&](const train::OptimizerStateGathered& gathered) {
                     v1::GatheredOptimizerState& told = *result.mutable_gathered_optimizer_state();
                     told.set_path(gathered.path);
                     told.set_step(gathered.step);
                     told.set_bytes(gathered.bytes);
                     told.set_seconds(gathered.stall_seconds);
                     told.set_write_seconds(gathered.seconds);
                     told.set_node(node);
                   },
                   [&](const train::ModelConsolidated& model) {
                     v1::ConsolidatedModel& told = *result.mutable_consolidated_model();
                     told.set_path(model.path);
                     told.set_step(model.step);
                     told.set_bytes(model.bytes);
                     for (const std::string& file : model.files) told.add_files(file);
                     for (const std::string& note : model.notes) told.add_notes(note);
                     told.set_stall_seconds(model.stall_seconds);
                     told.set_write_seconds(model.seconds);
                   },
                   [&](const train::TrainabilityChange& change) {
                     Set(result.mutable_trainability(), change);
                   },
                   [&](const train::TrainabilityPlan& plan) {
                     Set(result.mutable_trainability_plan()->mutable_change(), plan.change);
                     for (const auto& rank : plan.ranks) {
                       v1::RankPlan& added = *result.mutable_trainability_plan()->add_ranks();
                       added.set_state_bytes_before(rank.state_bytes_before);
                       added.set_state_bytes(rank.state_bytes);
                     }
                   },
                   [&](const train::StageEvaluated& stage) { Set(result.mutable_stage(), stage); },
                   [&](const train::Sampled& sampled) { Set(result.mutable_sample(), sampled); },
                   [&](const v1::OperationResult& told) { result = told; }},
        event.result);
  }
  void operator()(const train::StageStarted& event) const {
    report.mutable_stage_started()->set_stage(event.stage);
    report.mutable_stage_started()->set_step(event.step);
  }
  void operator()(const train::StageFinished& event) const {
    report.mutable_stage_finished()->set_stages_done(event.stages_done);
    report.mutable_stage_finished()->set_step(event.step);
  }
  void operator()(const v1::StepMetrics& event) const {
    if (event.has_validation() || event.has_test()) {
      Set(report.mutable_validated(), event);
      return;
    }
    *report.mutable_step() = event;
    report.mutable_step()->set_generation(generation);
  }
  void operator()(const train::RanksJoined& event) const {
    report.mutable_ranks_joined();
    for (const train::JoinedRank& joined : event.ranks) {
      v1::RanksJoined::Rank& added = *report.mutable_ranks_joined()->add_ranks();
      added.set_rank(joined.rank);
      added.set_since_step(joined.since);
    }
  }
  void operator()(const train::CheckpointWritten& event) const {
    report.mutable_checkpoint_written()->set_step(event.step);
    report.mutable_checkpoint_written()->set_path(event.path);
    report.mutable_checkpoint_written()->set_bytes(event.bytes);
    report.mutable_checkpoint_written()->set_stall_seconds(event.stall_seconds);
    report.mutable_checkpoint_written()->set_write_seconds(event.seconds);
    report.mutable_checkpoint_written()->set_best(event.best);
  }
  void operator()(const train::CheckpointFailed& event) const {
    report.mutable_checkpoint_failed()->set_step(event.step);
    report.mutable_checkpoint_failed()->set_reason(ValidUtf8(event.reason));
  }
  void operator()(const train::CheckpointBad& event) const {
    report.mutable_checkpoint_bad()->set_path(event.path);
    report.mutable_checkpoint_bad()->set_reason(ValidUtf8(event.reason));
  }
  void operator()(const train::CheckpointsFound& event) const {
    for (const auto& one : event.found) {
      auto* added = report.mutable_checkpoints_found()->add_found();
      added->set_step(one.step);
      added->set_generation(one.generation);
      added->set_path(one.path);
      added->set_adopted(one.reason.empty());
      added->set_reason(ValidUtf8(one.reason));
    }
  }
  void operator()(const train::CommandApplied& event) const {
    report.mutable_command_applied()->set_number(event.number);
    report.mutable_command_applied()->set_step(event.step);
  }
  void operator()(const train::ExportReady& event) const {
    report.mutable_export_ready()->set_path(event.path);
  }
  void operator()(const train::Notice& event) const {
    report.mutable_notice()->set_reason(event.reason);
    report.mutable_notice()->set_message(ValidUtf8(event.message));
    report.mutable_notice()->set_step(event.step);
  }
  void operator()(const train::Exported& event) const {
    report.mutable_exported()->set_path(event.path);
  }
};

}  // namespace

v1::WorkerReport ReportFromEvent(const train::Event& event, int64_t generation,
                                 const std::string& node) {
  v1::WorkerReport report;
  std::visit(Fill{report, generation, node}, event);
  return report;
}

}  // namespace muster::control
