#include "worker/train/commands/commands.h"

#include <spdlog/spdlog.h>

#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/commands/command_rule.h"
#include "common/status/status.h"
#include "common/trainability/from_proto.h"

namespace muster::train {
namespace {

constexpr char kCancelled[] = "OPERATION_CANCELLED";

CommandFinished Cancelled(int64_t number) {
  return {.number = number,
          .status = absl::CancelledError("cancelled before it took effect"),
          .reason = kCancelled,
          .result = {}};
}

int64_t NumberOf(const Command& command) { return static_cast<int64_t>(command.number()); }

// Returns "samples 24 of epoch 0 to 7 of epoch 1".
std::string Describe(const v1::SkippedData& skipped) {
  return absl::StrCat("samples ", skipped.first(), " of epoch ", skipped.first_epoch(), " to ",
                      skipped.last(), " of epoch ", skipped.last_epoch());
}

using Dependencies = Commands::Dependencies;

bool Trains(const Dependencies& deps) { return deps.trainability != nullptr; }
bool CanSave(const Dependencies& deps) {
  return deps.saver != nullptr && Trains(deps) && deps.session_state->step > 0;
}

// Reports that the command took effect at this step.
void TellApplied(const Dependencies& deps, int64_t number) {
  deps.session_state->Applied(number);
  deps.reports->Report(CommandApplied{number, deps.session_state->step});
}

// Reports that the command took effect and how it ended, both after the change. If the workers end
// during the change, the change counts as not made.
void Finish(const Dependencies& deps, const Command& command,
            decltype(CommandFinished::result) result = {}) {
  TellApplied(deps, NumberOf(command));
  deps.reports->Report(CommandFinished{.number = NumberOf(command),
                                       .status = absl::OkStatus(),
                                       .reason = "",
                                       .result = std::move(result)});
}

// Reports that the command took effect, changed nothing and failed. `reason`:
// CommandFinished::reason.
void Fail(const Dependencies& deps, const Command& command, const absl::Status& status,
          const std::string& reason) {
  TellApplied(deps, NumberOf(command));
  deps.session_state->Failed({NumberOf(command), status, reason});
  deps.reports->Report(CommandFinished{
      .number = NumberOf(command), .status = status, .reason = reason, .result = {}});
}

// Returns a function that reports the end of a long command, which has taken effect before: its
// file is written, or its pass is done. If the workers end before the report, the next generation
// carries out the command again.
template <typename Result>
std::function<void(const absl::StatusOr<Result>&)> ReportEndOf(const Dependencies& deps,
                                                               const Command& command) {
  return
      [reports = deps.reports, number = NumberOf(command)](const absl::StatusOr<Result>& result) {
        CommandFinished finished{
            .number = number, .status = result.status(), .reason = "", .result = {}};
        if (result.ok()) finished.result = *result;
        if (absl::IsCancelled(finished.status)) finished.reason = kCancelled;
        reports->Report(finished);
      };
}

// Returns true if the job has everything that the rule of the command needs. Otherwise reports that
// the command failed. A model that can generate is not checked here.
bool HasNeeds(const Dependencies& deps, const Command& command) {
  const auto lacks = [&](const std::string& what, const char* reason) {
    Fail(deps, command, absl::FailedPreconditionError(what), reason);
    return false;
  };
  for (const int need : commands::RuleOf(command).needs()) {
    const bool optimizer = need == v1::CommandRule::OPTIMIZER;
    if (need == v1::CommandRule::CHECKPOINTS && deps.saver == nullptr) {
      return lacks("the job has no place for checkpoints: its job file has no `checkpoint`",
                   "NO_CHECKPOINTS");
    }
    if ((optimizer || need == v1::CommandRule::TRAINING) && !Trains(deps)) {
      return lacks("the job trains nothing", "NO_OPTIMIZER");
    }
    if (optimizer && deps.session_state->training_over) {
      return lacks(
          absl::StrCat("training ended with step ", deps.session_state->step,
                       ", and the optimizer's state was freed; the job's last checkpoint has it, "
                       "if the job writes checkpoints (start.checkpoint)"),
          "TRAINING_OVER");
    }
  }
  return true;
}

// Makes a roll call and reports that the command took effect. The long work of the command follows.
absl::Status Begin(const Dependencies& deps, const Command& command) {
  RETURN_IF_ERROR(deps.call().status());
  TellApplied(deps, NumberOf(command));
  return absl::OkStatus();
}

absl::Status Stop(const Dependencies& deps, const Command& command) {
  TellApplied(deps, NumberOf(command));
  RETURN_IF_ERROR(deps.call().status());
  if (CanSave(deps)) RETURN_IF_ERROR(deps.saver->SaveLast().status());
  deps.session_state->stopped = true;
  return absl::OkStatus();
}

void SetLearningRate(const Dependencies& deps, const Command& command) {
  const double rate = command.set_learning_rate().learning_rate();
  SessionState& state = *deps.session_state;
  LearningRateSet result{.old_rate = state.learning_rate, .new_rate = rate};
  state.learning_rate = rate;
  result.next_step = rate * optim::LearningRateFactor(*deps.learning_rates, state.step);
  Finish(deps, command, result);
}

absl::Status SetTrainability(const Dependencies& deps, const Command& command) {
  const std::vector<TrainableRule> rules = RulesFromProto(command.set_trainability().rules());
  const absl::Status fit = deps.trainability->CheckRules(rules);
  if (!fit.ok()) {
    Fail(deps, command, fit, "TRAINABILITY_INVALID");
    return absl::OkStatus();
  }
  if (command.set_trainability().dry_run()) {
    ASSIGN_OR_RETURN(TrainabilityPlan plan, deps.trainability->Estimate(rules, NumberOf(command)));
    Finish(deps, command, std::move(plan));
  } else {
    ASSIGN_OR_RETURN(TrainabilityChange change, deps.trainability->Add(rules, NumberOf(command)));
    Finish(deps, command, std::move(change));
  }
  return absl::OkStatus();
}

absl::Status Refresh(const Dependencies& deps, const Command& command) {
  ASSIGN_OR_RETURN(TrainabilityChange change,
                   deps.trainability->BringPendingIntoForce(NumberOf(command)));
  Finish(deps, command, std::move(change));
  return absl::OkStatus();
}

absl::Status SkipData(const Dependencies& deps, const Command& command) {
  const v1::SkipDataCommand& skip = command.skip_data();
  const auto skipped = deps.skip_data(static_cast<int64_t>(skip.samples()), skip.dry_run());
  const v1::OperationResult& first = command.first_result();
  const std::string now = skipped.ok() ? Describe(*skipped) : "nothing";
  if (first.has_skipped_data() && now != Describe(first.skipped_data())) {
    deps.reports->Report(
        Notice{"OTHER_DATA_SKIPPED",
               absl::StrCat("operation ", NumberOf(command),
                            " (skip-data) is repeated with another batch, or after other steps: "
                            "it leaves out ",
                            now, ", and the first time ", Describe(first.skipped_data())),
               deps.session_state->step});
  }
  if (!skipped.ok()) {
    Fail(deps, command, skipped.status(), "NO_STEPS_LEFT");
    return absl::OkStatus();
  }
  v1::OperationResult result;
  *result.mutable_skipped_data() = *skipped;
  Finish(deps, command, result);
  return absl::OkStatus();
}

absl::Status RunStage(const Dependencies& deps, const Command& command) {
  const std::string& stage = command.run_stage().stage();
  if (!deps.evaluator->HasDataFor(stage)) {
    Fail(deps, command,
         absl::FailedPreconditionError(
             absl::StrCat("the job has no data for a stage '", stage,
                          "': it can validate with data.validate, and test with data.test")),
         "NO_DATA");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Begin(deps, command));
  ASSIGN_OR_RETURN(const auto evaluated, deps.evaluator->EvaluateNow(stage));
  ReportEndOf<StageEvaluated>(deps, command)(evaluated);
  return absl::OkStatus();
}

absl::Status Sample(const Dependencies& deps, const Command& command) {
  ASSIGN_OR_RETURN(const auto request, deps.generator->Prepare(command.sample()));
  if (!request.ok()) {
    const absl::Status& bad = request.status();
    Fail(deps, command, bad,
         absl::IsNotFound(bad)             ? "NO_TOKENIZER"
         : absl::IsFailedPrecondition(bad) ? "CANNOT_GENERATE"
                                           : "SAMPLE_INVALID");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Begin(deps, command));
  ASSIGN_OR_RETURN(const auto sampled, deps.generator->Sample(*request));
  ReportEndOf<Sampled>(deps, command)(sampled);
  return absl::OkStatus();
}

absl::Status Cancel(const Dependencies& deps, const CommandSchedule::Due& due) {
  const auto target = static_cast<int64_t>(due.command.cancel().target());
  if (due.cancels) {
    const Command waited = deps.source->Get(target);
    const std::string* const path = PathFor(waited);
    if (path != nullptr && Trains(deps)) deps.gatherer->RemoveLeftovers(*path);
    deps.reports->Report(Cancelled(target));
    Finish(deps, due.command);
    return absl::OkStatus();
  }
  bool cancelled = false;
  if (Trains(deps)) {
    ASSIGN_OR_RETURN(cancelled, deps.gatherer->Cancel(target));
  }
  if (cancelled) {
    Finish(deps, due.command);
  } else {
    Fail(deps, due.command,
         absl::FailedPreconditionError(
             "the command cannot be cancelled: it has already taken effect or been cancelled"),
         "OPERATION_APPLIED");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> Commands::Apply(int64_t newest) {
  const auto get = [this](int64_t number) { return deps_.source->Get(number); };
  bool any = false;
  while (true) {
    deps_.schedule->TakeIn(newest, deps_.session_state->step, get);
    while (const auto due = deps_.schedule->Next(deps_.session_state->step)) {
      any = true;
      RETURN_IF_ERROR(Apply(*due));
      if (deps_.session_state->stopped) return true;
    }
    if (!paused_) return any;
    deps_.reports->Progress("paused");
    std::this_thread::sleep_for(deps_.pause_beat);
    ASSIGN_OR_RETURN(const RollCallPlan plan, deps_.call());
    if (plan.preempted) {
      RETURN_IF_ERROR(EndHere());
      return true;
    }
    newest = plan.apply_commands;
  }
}

absl::Status Commands::EndHere() {
  RETURN_IF_ERROR(deps_.call().status());
  if (Trains(deps_)) RETURN_IF_ERROR(deps_.gatherer->LeaveToNextGeneration());
  if (CanSave(deps_)) {
    ASSIGN_OR_RETURN(const Saver::Saved saved, deps_.saver->SaveLast());
    if (!saved.ok() && deps_.reports->leader()) {
      spdlog::warn(
          "the job continues on other nodes from an earlier checkpoint, because this one could not "
          "be written: {}",
          Message(saved.status()));
    }
  }
  deps_.session_state->preempted = deps_.session_state->stopped = true;
  return absl::OkStatus();
}

void Commands::TellUnreported() const {
  if (!deps_.reports->leader()) return;
  const auto& applied = deps_.session_state->applied;
  const std::map<int64_t, int64_t> steps(applied.begin(), applied.end());
  const auto get = [this](int64_t number) { return deps_.source->Get(number); };
  for (const auto& [number, what, step] :
       FindUnreported(deps_.schedule->position(), deps_.session_state->step, steps,
                      deps_.source->Newest(), get)) {
    if (what == Unreported::What::kCancelled) {
      deps_.reports->Report(Cancelled(number));
      continue;
    }
    deps_.reports->Report(CommandApplied{number, step});
    if (what == Unreported::What::kFinished) {
      CommandFinished finished{.number = number};
      for (const manifest::FailedCommand& failed : deps_.session_state->failed) {
        if (failed.number != number) continue;
        finished.status = failed.status;
        finished.reason = failed.reason;
      }
      deps_.reports->Report(finished);
    }
  }
}

absl::Status Commands::Apply(const CommandSchedule::Due& due) {
  const Command& command = due.command;
  if (!HasNeeds(deps_, command)) return absl::OkStatus();
  switch (command.kind_case()) {
    case Command::kStop:
      return Stop(deps_, command);
    case Command::kSaveCheckpoint:
      RETURN_IF_ERROR(Begin(deps_, command));
      return deps_.saver->Save(NumberOf(command), ReportEndOf<CheckpointWritten>(deps_, command));
    case Command::kGatherOptimizerState:
      RETURN_IF_ERROR(Begin(deps_, command));
      return deps_.gatherer->Gather(command.gather_optimizer_state().file(), NumberOf(command),
                                    ReportEndOf<OptimizerStateGathered>(deps_, command));
    case Command::kConsolidate:
      RETURN_IF_ERROR(Begin(deps_, command));
      return deps_.gatherer->Consolidate(command.consolidate().folder(), NumberOf(command),
                                         ReportEndOf<ModelConsolidated>(deps_, command));
    case Command::kSetLearningRate:
      SetLearningRate(deps_, command);
      return absl::OkStatus();
    case Command::kSetTrainability:
      return SetTrainability(deps_, command);
    case Command::kRefresh:
      return Refresh(deps_, command);
    case Command::kSkipData:
      return SkipData(deps_, command);
    case Command::kRunStage:
      return RunStage(deps_, command);
    case Command::kSample:
      return Sample(deps_, command);
    case Command::kPause:
    case Command::kResume:
      paused_ = command.has_pause();
      Finish(deps_, command);
      return absl::OkStatus();
    case Command::kCancel:
      return Cancel(deps_, due);
    case Command::kNone:
    case Command::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace muster::train
