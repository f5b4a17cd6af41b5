#include "worker/train/commands/commands.h"

#include <spdlog/spdlog.h>

#include <map>
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

// "samples 24 of epoch 0 to 7 of epoch 1".
std::string Describe(const v1::SkippedData& skipped) {
  return absl::StrCat("samples ", skipped.first(), " of epoch ", skipped.first_epoch(), " to ",
                      skipped.last(), " of epoch ", skipped.last_epoch());
}

}  // namespace

template <typename Result>
std::function<void(const absl::StatusOr<Result>&)> Commands::ReportEndOf(
    const Command& command) const {
  return
      [reports = parts_.reports, number = NumberOf(command)](const absl::StatusOr<Result>& result) {
        CommandFinished finished{
            .number = number, .status = result.status(), .reason = "", .result = {}};
        if (result.ok()) finished.result = *result;
        if (absl::IsCancelled(finished.status)) finished.reason = kCancelled;
        reports->Report(finished);
      };
}

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
    ASSIGN_OR_RETURN(const RollCallPlan plan, parts_.call());
    if (plan.preempted) {
      RETURN_IF_ERROR(EndHere());
      return true;
    }
    newest = plan.apply_commands;
  }
}

absl::Status Commands::EndHere() {
  RETURN_IF_ERROR(parts_.call().status());
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
  const Command& command = due.command;
  if (!HasNeeds(command)) return absl::OkStatus();
  switch (command.kind_case()) {
    case Command::kStop:
      return Stop(command);
    case Command::kSaveCheckpoint:
      RETURN_IF_ERROR(Begin(command));
      return parts_.saver->Save(NumberOf(command), ReportEndOf<CheckpointWritten>(command));
    case Command::kGatherOptimizerState:
      RETURN_IF_ERROR(Begin(command));
      return parts_.gatherer->Gather(command.gather_optimizer_state().file(), NumberOf(command),
                                     ReportEndOf<OptimizerStateGathered>(command));
    case Command::kConsolidate:
      RETURN_IF_ERROR(Begin(command));
      return parts_.gatherer->Consolidate(command.consolidate().folder(), NumberOf(command),
                                          ReportEndOf<ModelConsolidated>(command));
    case Command::kSetLearningRate:
      SetLearningRate(command);
      return absl::OkStatus();
    case Command::kSetTrainability:
      return SetTrainability(command);
    case Command::kRefresh:
      return Refresh(command);
    case Command::kSkipData:
      return SkipData(command);
    case Command::kRunStage:
      return RunStage(command);
    case Command::kSample:
      return Sample(command);
    case Command::kPause:
    case Command::kResume:
      paused_ = command.has_pause();
      Finish(command);
      return absl::OkStatus();
    case Command::kCancel:
      return Cancel(due);
    case Command::kNone:
    case Command::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void Commands::TellApplied(int64_t number) {
  parts_.session_state->Applied(number);
  parts_.reports->Report(CommandApplied{number, parts_.session_state->step});
}

void Commands::Finish(const Command& command, decltype(CommandFinished::result) result) {
  TellApplied(NumberOf(command));
  parts_.reports->Report(CommandFinished{.number = NumberOf(command),
                                         .status = absl::OkStatus(),
                                         .reason = "",
                                         .result = std::move(result)});
}

void Commands::Fail(const Command& command, const absl::Status& status, const std::string& reason) {
  TellApplied(NumberOf(command));
  parts_.reports->Report(CommandFinished{
      .number = NumberOf(command), .status = status, .reason = reason, .result = {}});
}

bool Commands::HasNeeds(const Command& command) {
  const auto lacks = [&](const std::string& what, const char* reason) {
    Fail(command, absl::FailedPreconditionError(what), reason);
    return false;
  };
  for (const int need : commands::RuleOf(command).needs()) {
    const bool optimizer = need == v1::CommandRule::OPTIMIZER;
    if (need == v1::CommandRule::CHECKPOINTS && parts_.saver == nullptr) {
      return lacks("the job has no place for checkpoints: its job file has no `checkpoint`",
                   "NO_CHECKPOINTS");
    }
    if ((optimizer || need == v1::CommandRule::TRAINING) && !trains()) {
      return lacks("the job trains nothing", "NO_OPTIMIZER");
    }
    if (optimizer && parts_.session_state->training_over) {
      return lacks(
          absl::StrCat("training ended with step ", parts_.session_state->step,
                       ", and the optimizer's state was freed; the job's last checkpoint has it, "
                       "if the job writes checkpoints (start.checkpoint)"),
          "TRAINING_OVER");
    }
  }
  return true;
}

absl::Status Commands::Cancel(const CommandSchedule::Due& due) {
  const auto target = static_cast<int64_t>(due.command.cancel().target());
  if (due.cancels) {
    const Command waited = parts_.source->Get(target);
    const std::string* const path = PathFor(waited);
    if (path != nullptr && trains()) parts_.gatherer->RemoveLeftovers(*path);
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

absl::Status Commands::Stop(const Command& command) {
  TellApplied(NumberOf(command));
  RETURN_IF_ERROR(parts_.call().status());
  if (can_save()) RETURN_IF_ERROR(parts_.saver->SaveLast().status());
  parts_.session_state->stopped = true;
  return absl::OkStatus();
}

absl::Status Commands::Begin(const Command& command) {
  RETURN_IF_ERROR(parts_.call().status());
  TellApplied(NumberOf(command));
  return absl::OkStatus();
}

void Commands::SetLearningRate(const Command& command) {
  const double rate = command.set_learning_rate().learning_rate();
  SessionState& state = *parts_.session_state;
  LearningRateSet result{.old_rate = state.learning_rate, .new_rate = rate};
  state.learning_rate = rate;
  result.next_step = rate * optim::LearningRateFactor(*parts_.learning_rates, state.step);
  Finish(command, result);
}

absl::Status Commands::SetTrainability(const Command& command) {
  const std::vector<TrainableRule> rules = RulesFromProto(command.set_trainability().rules());
  const absl::Status fit = parts_.training->CheckRules(rules);
  if (!fit.ok()) {
    Fail(command, fit, "TRAINABILITY_INVALID");
    return absl::OkStatus();
  }
  if (command.set_trainability().dry_run()) {
    ASSIGN_OR_RETURN(TrainabilityPlan plan, parts_.training->Foresee(rules, NumberOf(command)));
    Finish(command, std::move(plan));
  } else {
    ASSIGN_OR_RETURN(TrainabilityChange change, parts_.training->Add(rules, NumberOf(command)));
    Finish(command, std::move(change));
  }
  return absl::OkStatus();
}

absl::Status Commands::Refresh(const Command& command) {
  ASSIGN_OR_RETURN(TrainabilityChange change,
                   parts_.training->BringPendingIntoForce(NumberOf(command)));
  Finish(command, std::move(change));
  return absl::OkStatus();
}

absl::Status Commands::SkipData(const Command& command) {
  const v1::SkipDataCommand& skip = command.skip_data();
  const auto skipped = parts_.skip_data(static_cast<int64_t>(skip.samples()), skip.dry_run());
  const v1::OperationResult& first = command.first_result();
  const std::string now = skipped.ok() ? Describe(*skipped) : "nothing";
  if (first.has_skipped_data() && now != Describe(first.skipped_data())) {
    parts_.reports->Report(
        Notice{"OTHER_DATA_SKIPPED",
               absl::StrCat("operation ", NumberOf(command),
                            " (skip-data) is repeated with another batch, or after other steps: "
                            "it leaves out ",
                            now, ", and the first time ", Describe(first.skipped_data())),
               parts_.session_state->step});
  }
  if (!skipped.ok()) {
    Fail(command, skipped.status(), "NO_STEPS_LEFT");
    return absl::OkStatus();
  }
  v1::OperationResult result;
  *result.mutable_skipped_data() = *skipped;
  Finish(command, result);
  return absl::OkStatus();
}

absl::Status Commands::RunStage(const Command& command) {
  const std::string& stage = command.run_stage().stage();
  if (!parts_.evaluator->HasDataFor(stage)) {
    Fail(command,
         absl::FailedPreconditionError(
             absl::StrCat("the job has no data for a stage '", stage,
                          "': it can validate with data.validate, and test with data.test")),
         "NO_DATA");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Begin(command));
  ASSIGN_OR_RETURN(const auto evaluated, parts_.evaluator->EvaluateNow(stage));
  ReportEndOf<StageEvaluated>(command)(evaluated);
  return absl::OkStatus();
}

absl::Status Commands::Sample(const Command& command) {
  const v1::SampleCommand& sample = command.sample();
  if (const absl::Status bad = parts_.generator->CheckSample(sample); !bad.ok()) {
    Fail(command, bad, absl::IsFailedPrecondition(bad) ? "CANNOT_GENERATE" : "SAMPLE_INVALID");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Begin(command));
  ASSIGN_OR_RETURN(const auto sampled, parts_.generator->Sample(sample));
  ReportEndOf<Sampled>(command)(sampled);
  return absl::OkStatus();
}

}  // namespace muster::train
