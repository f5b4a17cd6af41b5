#include "worker/train/commands/commands.h"

#include <spdlog/spdlog.h>

#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "worker/train/schedule/unreported.h"

namespace muster::train {
namespace {

constexpr char kCancelled[] = "OPERATION_CANCELLED";

CommandFinished Cancelled(int64_t number) {
  return {.number = number,
          .status = absl::CancelledError("cancelled before it took effect"),
          .reason = kCancelled,
          .result = {}};
}

}  // namespace

absl::StatusOr<bool> Commands::Apply(int64_t newest) {
  const auto get = [this](int64_t number) { return parts_.source->Get(number); };
  bool any = false;
  while (true) {
    parts_.schedule->TakeIn(newest, parts_.session_state->step, get);
    while (const auto due = parts_.schedule->Next(parts_.session_state->step)) {
      any = true;
      RETURN_IF_ERROR(Apply(*due));
      if (parts_.session_state->stopped) return true;
    }
    if (!paused_) return any;
    parts_.reports->Progress("paused");
    std::this_thread::sleep_for(parts_.pause_beat);
    ASSIGN_OR_RETURN(const RollCallPlan plan, parts_.calls->CallNow());
    if (plan.preempted) {
      RETURN_IF_ERROR(EndHere());
      return true;
    }
    newest = plan.apply_commands;
  }
}

absl::Status Commands::EndHere() {
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  if (trains()) RETURN_IF_ERROR(parts_.gatherer->LeaveToNextGeneration());
  if (can_save()) {
    ASSIGN_OR_RETURN(const Saver::Saved saved, parts_.saver->SaveLast());
    if (!saved.ok() && parts_.reports->leader()) {
      spdlog::warn(
          "the job continues on other nodes from an earlier checkpoint, because this one could not "
          "be written: {}",
          Message(saved.status()));
    }
  }
  parts_.session_state->preempted = parts_.session_state->stopped = true;
  return absl::OkStatus();
}

void Commands::TellUnreported() const {
  if (!parts_.reports->leader()) return;
  const auto& applied = parts_.session_state->applied;
  const std::map<int64_t, int64_t> steps(applied.begin(), applied.end());
  const auto get = [this](int64_t number) { return parts_.source->Get(number); };
  for (const auto& [number, what, step] :
       FindUnreported(parts_.schedule->position(), parts_.session_state->step, steps,
                      parts_.source->Newest(), get)) {
    if (what == Unreported::What::kCancelled) {
      parts_.reports->Report(Cancelled(number));
      continue;
    }
    parts_.reports->Report(CommandApplied{number, step});
    if (what == Unreported::What::kFinished) {
      parts_.reports->Report(CommandFinished{.number = number});
    }
  }
}

absl::Status Commands::Apply(const CommandSchedule::Due& due) {
  return std::visit(
      Overloaded{[&](const CancelCommand& cancel) { return Cancel(due, cancel.target); },
                 [&](const auto& what) -> absl::Status { return Apply(due.command, what); }},
      due.command.what);
}

void Commands::TellApplied(int64_t number) {
  parts_.session_state->Applied(number);
  parts_.reports->Report(CommandApplied{number, parts_.session_state->step});
}

void Commands::Finish(const Command& command, decltype(CommandFinished::result) result) {
  TellApplied(command.number);
  parts_.reports->Report(CommandFinished{.number = command.number,
                                         .status = absl::OkStatus(),
                                         .reason = "",
                                         .result = std::move(result)});
}

void Commands::Fail(const Command& command, const absl::Status& status, const std::string& reason) {
  TellApplied(command.number);
  parts_.reports->Report(
      CommandFinished{.number = command.number, .status = status, .reason = reason, .result = {}});
}

template <typename Result>
std::function<void(const absl::StatusOr<Result>&)> Commands::ReportEndOf(
    const Command& command) const {
  return [reports = parts_.reports, number = command.number](const absl::StatusOr<Result>& result) {
    CommandFinished finished{
        .number = number, .status = result.status(), .reason = "", .result = {}};
    if (result.ok()) finished.result = *result;
    if (absl::IsCancelled(finished.status)) finished.reason = kCancelled;
    reports->Report(finished);
  };
}

bool Commands::NeedsTraining(const Command& command) {
  if (trains()) return true;
  Fail(command, absl::FailedPreconditionError("the job trains nothing"), "NO_OPTIMIZER");
  return false;
}

bool Commands::NeedsOptimizer(const Command& command) {
  if (!NeedsTraining(command)) return false;
  if (!parts_.session_state->training_over) return true;
  const int64_t step = parts_.session_state->step;
  Fail(command,
       absl::FailedPreconditionError(absl::StrCat(
           "training ended with step ", step,
           ", and the optimizer's state was freed; the job's last checkpoint has it, if the job "
           "writes checkpoints (start.checkpoint)")),
       "TRAINING_OVER");
  return false;
}

absl::Status Commands::Cancel(const CommandSchedule::Due& due, int64_t target) {
  if (due.cancels) {
    const Command waited = parts_.source->Get(target);
    const std::string* const path = PathFor(waited);
    if (path != nullptr && trains()) {
      parts_.gatherer->RemoveLeftovers(*path);
    }
    parts_.reports->Report(Cancelled(target));
    Finish(due.command);
    return absl::OkStatus();
  }
  bool cancelled = false;
  if (trains()) {
    ASSIGN_OR_RETURN(cancelled, parts_.gatherer->Cancel(target));
  }
  if (cancelled) {
    Finish(due.command);
  } else {
    Fail(due.command,
         absl::FailedPreconditionError(
             "the command cannot be cancelled: it has already taken effect or been cancelled"),
         "OPERATION_APPLIED");
  }
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const StopCommand&) {
  TellApplied(command.number);
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  if (can_save()) RETURN_IF_ERROR(parts_.saver->SaveLast().status());
  parts_.session_state->stopped = true;
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const SaveCheckpointCommand&) {
  if (parts_.saver == nullptr) {
    Fail(command,
         absl::FailedPreconditionError(
             "the job has no place for checkpoints: its job file has no `checkpoint`"),
         "NO_CHECKPOINTS");
    return absl::OkStatus();
  }
  if (!NeedsTraining(command)) return absl::OkStatus();
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  TellApplied(command.number);
  return parts_.saver->Save(command.number, ReportEndOf<CheckpointWritten>(command));
}

absl::Status Commands::Apply(const Command& command, const GatherOptimizerStateCommand& gather) {
  if (!NeedsOptimizer(command)) return absl::OkStatus();
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  TellApplied(command.number);
  return parts_.gatherer->Gather(gather, command.number,
                                 ReportEndOf<OptimizerStateGathered>(command));
}

absl::Status Commands::Apply(const Command& command, const ConsolidateCommand& consolidate) {
  if (!NeedsTraining(command)) return absl::OkStatus();
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  TellApplied(command.number);
  return parts_.gatherer->Consolidate(consolidate, command.number,
                                      ReportEndOf<ModelConsolidated>(command));
}

absl::Status Commands::Apply(const Command& command, const SetLearningRateCommand& set) {
  if (!NeedsOptimizer(command)) return absl::OkStatus();
  SessionState& state = *parts_.session_state;
  LearningRateSet result{.old_rate = state.learning_rate, .new_rate = set.rate};
  state.learning_rate = set.rate;
  result.next_step = set.rate * optim::LearningRateFactor(*parts_.learning_rates, state.step);
  Finish(command, result);
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const SetTrainabilityCommand& set) {
  if (!NeedsOptimizer(command)) return absl::OkStatus();
  const absl::Status rules = parts_.training->CheckRules(set.rules);
  if (!rules.ok()) {
    Fail(command, rules, "TRAINABILITY_INVALID");
    return absl::OkStatus();
  }
  if (set.dry_run) {
    ASSIGN_OR_RETURN(TrainabilityPlan plan, parts_.training->Foresee(set.rules, command.number));
    Finish(command, std::move(plan));
  } else {
    ASSIGN_OR_RETURN(TrainabilityChange change, parts_.training->Add(set.rules, command.number));
    Finish(command, std::move(change));
  }
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const RefreshCommand&) {
  if (!NeedsOptimizer(command)) return absl::OkStatus();
  ASSIGN_OR_RETURN(TrainabilityChange change,
                   parts_.training->BringPendingIntoForce(command.number));
  Finish(command, std::move(change));
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const RunStageCommand& run) {
  if (!parts_.evaluator->HasDataFor(run.stage)) {
    Fail(command,
         absl::FailedPreconditionError(
             absl::StrCat("the job has no data for a stage '", run.stage,
                          "': it can validate with data.validate, and test with data.test")),
         "NO_DATA");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  TellApplied(command.number);
  ASSIGN_OR_RETURN(const auto evaluated, parts_.evaluator->EvaluateNow(run.stage));
  ReportEndOf<StageEvaluated>(command)(evaluated);
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const SampleCommand& sample) {
  if (const absl::Status bad = parts_.generator->CheckSample(sample); !bad.ok()) {
    Fail(command, bad, absl::IsFailedPrecondition(bad) ? "CANNOT_GENERATE" : "SAMPLE_INVALID");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  TellApplied(command.number);
  ASSIGN_OR_RETURN(const auto sampled, parts_.generator->Sample(sample));
  ReportEndOf<Sampled>(command)(sampled);
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const PauseCommand&) {
  paused_ = true;
  Finish(command);
  return absl::OkStatus();
}

absl::Status Commands::Apply(const Command& command, const ResumeCommand&) {
  paused_ = false;
  Finish(command);
  return absl::OkStatus();
}

}  // namespace muster::train
