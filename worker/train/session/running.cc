#include "worker/train/session/running.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/guarded.h"

namespace muster::train {

Running::Running(std::unique_ptr<Loaded> loaded)
    : loaded_(std::move(loaded)),
      schedule_(loaded_->commands),
      calls_(loaded_.get(), &schedule_, &background_),
      live_(LiveStateOf(loaded_.get())),
      writers_(loaded_.get(), &schedule_, &live_, &background_),
      forwards_(loaded_.get(), &live_, &calls_.between, &background_),
      changes_(ChangesOf(loaded_.get(), &calls_.each_step)),
      commands_({.source = opened().parts.commands,
                 .call = [this] { return calls_.between.CallNow(); },
                 .saver = has_checkpoints() ? &writers_.best : nullptr,
                 .gatherer = writers_.gathering.has_value() ? &*writers_.gathering : nullptr,
                 .trainability = changes_.has_value() ? &*changes_ : nullptr,
                 .skip_data =
                     [this](int64_t samples, bool dry_run) {
                       return SkipSamples(SkipDependenciesOf(loaded_.get()), samples, dry_run);
                     },
                 .evaluator = &forwards_.evaluation,
                 .generator = &forwards_.generator,
                 .learning_rates = &job().schedule,
                 .schedule = &schedule_,
                 .session_state = &state(),
                 .reports = &reports()}),
      background_(opened().parts.files, &reports(), loaded_->agreed->ranks_of_node) {}

absl::Status Running::Begin() {
  RETURN_IF_ERROR(calls_.between.CallNow().status());  // the ranks compare their layouts
  reports().ReportOfRank(SessionStarted{state().step, loaded_->started_from,
                                        schedule_.position().taken, TotalSteps(loaded_->stages)});
  commands_.TellUnreported();
  if (changes_.has_value()) changes_->ReportInForce();
  return absl::OkStatus();
}

absl::StatusOr<SessionEnd> Running::Run() {
  const auto end = Guarded("training", [this] { return RunStages(); });
  if (end.ok()) {
    RETURN_IF_ERROR(background_.Await());
    return end;
  }
  // The files may still become complete even if this rank alone fails. This rank has done its part
  // before it began the files, and the other ranks have begun or will begin the same files. A rank
  // that has lost another rank does not wait.
  const absl::Status& why = end.status();
  const bool lost_a_rank =
      absl::IsUnavailable(why) || absl::IsAborted(why) || absl::IsDeadlineExceeded(why);
  if (!lost_a_rank) background_.Await().IgnoreError();
  return end;
}

absl::StatusOr<SessionEnd> Running::RunStages() {
  ReturnFreedMemory("before the first stage");
  if (state().validation_due) RETURN_IF_ERROR(ValidateDue());
  for (const PlannedStage& remaining :
       RemainingStages(loaded_->stages, state().step, opened().parts.stages_done)) {
    if (state().stopped) break;
    // The current plan: an early end or skipped samples may have moved the begin of this stage.
    const PlannedStage stage = loaded_->stages[remaining.index];
    RETURN_IF_ERROR(RunStage(stage));
  }
  if (!state().stopped) {
    // The weights are exported even if the last checkpoint could not be written.
    const absl::Status exported = Export();
    if (!final_save_.ok() && (exported.ok() || CauseOf(exported) == Cause::kFinalSaveFailed)) {
      const std::string also = exported.ok() ? "" : absl::StrCat("; and ", exported.message());
      return WithCause(absl::Status(final_save_.code(),
                                    absl::StrCat("the checkpoint at the end of training failed: ",
                                                 final_save_.message(), also)),
                       Cause::kFinalSaveFailed);
    }
    RETURN_IF_ERROR(exported);
  }
  return SessionEnd{state().step, state().stopped && !state().preempted, state().preempted,
                    ended_early_};
}

absl::Status Running::RunStage(const PlannedStage& stage) {
  if (stage.trains() && !ended_early_.empty()) return absl::OkStatus();
  const bool trained = !ended_early_.empty() || !FitFollows(loaded_->stages, stage.index);
  if (!stage.trains() && trained) RETURN_IF_ERROR(EndTraining());
  if (state().stopped) return absl::OkStatus();
  const auto evaluate = [this](const char* name, SessionEvaluation::Set set) {
    BeginStage(name);
    return RunToEnd([this, set]() -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(const auto evaluation, forwards_.evaluation.Run(set));
      return evaluation.has_value();
    });
  };
  RETURN_IF_ERROR(std::visit(
      Overloaded{[this](const FitUntil& fit) {
                   BeginStage("fit");
                   return Fit(fit);
                 },
                 [&](const ValidateStage&) {
                   return evaluate("validate", SessionEvaluation::Set::kValidate);
                 },
                 [&](const TestStage&) { return evaluate("test", SessionEvaluation::Set::kTest); },
                 [&](const PredictStage& predict) {
                   BeginStage("predict");
                   return Predict(stage.index, predict);
                 }},
      stage.what));
  if (!stage.trains() && !state().stopped) {
    reports().Report(StageFinished{stage.index + 1, state().step});
  }
  ReturnFreedMemory(absl::StrCat("after stages[", stage.index, "]"));
  return absl::OkStatus();
}

absl::Status Running::RunToEnd(const std::function<absl::StatusOr<bool>()>& work) {
  while (true) {
    ASSIGN_OR_RETURN(const RollCallPlan plan, calls_.between.CallNow());
    if (plan.preempted) return commands_.EndHere();
    ASSIGN_OR_RETURN(const bool applied, commands_.Apply(plan.apply_commands));
    if (state().stopped) return absl::OkStatus();
    if (applied) continue;
    ASSIGN_OR_RETURN(const bool done, work());
    if (done) return absl::OkStatus();
  }
}

absl::Status Running::Predict(int64_t stage, const PredictStage& predict) {
  for (int attempt = 1;;) {
    Predicted end;
    RETURN_IF_ERROR(RunToEnd([&]() -> absl::StatusOr<bool> {
      ASSIGN_OR_RETURN(end, RunPrediction(forwards_.predict, stage, predict));
      return !end.interrupted;
    }));
    if (state().stopped) return absl::OkStatus();
    if (end.file.ok()) return absl::OkStatus();
    if (opened().attempts.TryAgain(end.file, attempt, "writing predictions")) {
      ++attempt;
      continue;
    }
    const absl::Status failed = Annotate(end.file, NameOfPrediction(stage) + ".output");
    // A failed file repeats no training if nothing is left to train.
    const bool trained = !ended_early_.empty() || !FitFollows(loaded_->stages, stage);
    return trained ? WithCause(failed, Cause::kFinalSaveFailed) : failed;
  }
}

absl::Status Running::Fit(FitUntil stage) {
  ASSIGN_OR_RETURN(RollCallPlan plan, calls_.between.CallNow());
  RETURN_IF_ERROR(PrepareSample(stage.stage));
  while (state().step < stage.end) {
    ASSIGN_OR_RETURN(const bool ran_out, RanOut(plan));
    if (ran_out) break;
    if (plan.preempted) return commands_.EndHere();
    ASSIGN_OR_RETURN(const bool applied, commands_.Apply(plan.apply_commands));
    if (state().stopped) return absl::OkStatus();
    if (applied) {
      stage = Planned(stage);
      ASSIGN_OR_RETURN(plan, calls_.between.CallNow());
      if (!plan.inputs.ran_out.empty() && state().step > 0 && has_checkpoints()) {
        // A command skipped the last samples of a rank, so no boundary follows.
        ASSIGN_OR_RETURN(const Saver::Saved saved, writers_.best.SaveLast());
        final_save_ = saved.status();
      }
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    opened().profile.BeginStep(state().step + 1);
    // Commands in the plan of this call wait, because a step must directly follow its hook.
    ASSIGN_OR_RETURN(const auto plan_after_hook, changes_->BeforeStep());
    if (plan_after_hook.has_value()) plan = *plan_after_hook;
    calls_.each_step.PostNext();
    RETURN_IF_ERROR(Step(plan));
    ASSIGN_OR_RETURN(plan, calls_.each_step.AwaitNext());
    // The duration of a step with its roll call. The next call reports the step with its loss.
    calls_.each_step.SetSeconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    RETURN_IF_ERROR(opened().profile.EndStep(state().step));
    ASSIGN_OR_RETURN(const auto boundary_plan, AtBoundary(&stage, plan));
    if (state().stopped) return absl::OkStatus();
    if (boundary_plan.has_value()) plan = *boundary_plan;
  }
  return absl::OkStatus();
}

absl::Status Running::Step(const RollCallPlan& plan) {
  reports().Progress("training");
  ASSIGN_OR_RETURN(PendingStep step,
                   loaded_->training->stepper().Run(
                       {state().step + 1, state().position, plan.inputs, state().learning_rate}));
  state().position = loaded_->sampler->After(state().position);
  ++state().step;
  loaded_->training->UpdateAverages(state().step);
  return calls_.each_step.TakeIn(std::move(step), plan.inputs.samples);
}

absl::StatusOr<bool> Running::RanOut(const RollCallPlan& plan) {
  if (plan.inputs.ran_out.empty()) return false;
  ended_early_ = absl::StrCat(DescribeRanOut(plan.inputs.ran_out), " after step ", state().step,
                              " (uneven_inputs: stop_at_first)");
  if (state().step == 0)
    return absl::FailedPreconditionError(absl::StrCat(ended_early_, ": nothing can be trained"));
  return true;
}

void Running::BeginStage(const char* stage) {
  state().stage = stage;
  reports().Report(StageStarted{stage, state().step});
}

}  // namespace muster::train
