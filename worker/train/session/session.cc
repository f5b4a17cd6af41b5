#include "worker/train/session/session.h"

#include <ATen/Parallel.h>
#include <spdlog/spdlog.h>

#include <bit>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "worker/checkpoint/state.h"
#include "worker/device/event.h"
#include "worker/memory/resident.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/guarded.h"
#include "worker/train/session/session_impl.h"

namespace muster::train {
namespace {

// A stage may need pieces of other sizes than the one before, and malloc would take new pages for
// them.
void ReturnFreedMemory(const std::string& when) {
  memory::ReturnFreedMemory();
  spdlog::info("{}: {:.2f} MiB are resident", when,
               static_cast<double>(memory::ResidentBytes()) / (1 << 20));
}

}  // namespace

absl::StatusOr<SessionEnd> SessionImpl::Run() {
  const auto end = Guarded("training", [this] { return RunStages(); });
  if (end.ok()) {
    RETURN_IF_ERROR(background_.Await());
    return end;
  }
  // The files may still become complete, also if this rank fails alone: the other ranks have begun
  // the same ones, or will, because all that this needs of this rank was done before it began them.
  // A rank that has lost another one does not wait.
  const absl::Status& why = end.status();
  const bool lost_a_rank =
      absl::IsUnavailable(why) || absl::IsAborted(why) || absl::IsDeadlineExceeded(why);
  if (!lost_a_rank) background_.Await().IgnoreError();
  return end;
}

absl::StatusOr<SessionEnd> SessionImpl::RunStages() {
  ReturnFreedMemory("before the first stage");
  if (session_state_.validation_due) RETURN_IF_ERROR(ValidateDue());
  for (const PlannedStage& remaining :
       RemainingStages(stages_, session_state_.step, parts_.stages_done)) {
    if (session_state_.stopped) break;
    // Where a stage ended early, those after it begin sooner than was planned.
    const PlannedStage stage = stages_[remaining.index];
    RETURN_IF_ERROR(RunStage(stage));
  }
  if (!session_state_.stopped) {
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
  return SessionEnd{session_state_.step, session_state_.stopped && !session_state_.preempted,
                    session_state_.preempted, ended_early_};
}

absl::Status SessionImpl::RunStage(const PlannedStage& stage) {
  if (stage.trains() && !ended_early_.empty()) return absl::OkStatus();
  const bool trained = !ended_early_.empty() || !FitFollows(stages_, stage.index);
  if (!stage.trains() && trained) RETURN_IF_ERROR(EndTraining());
  if (session_state_.stopped) return absl::OkStatus();
  RETURN_IF_ERROR(std::visit(Overloaded{[this](const FitUntil& fit) {
                                          BeginStage("fit");
                                          return Fit(fit);
                                        },
                                        [this](const ValidateStage&) {
                                          BeginStage("validate");
                                          return RunToEnd([this]() -> absl::StatusOr<bool> {
                                            ASSIGN_OR_RETURN(const auto evaluation, Validate());
                                            return evaluation.has_value();
                                          });
                                        },
                                        [this](const TestStage&) {
                                          BeginStage("test");
                                          return RunToEnd([this] { return Test(); });
                                        },
                                        [&](const PredictStage& predict) {
                                          BeginStage("predict");
                                          return Predict(stage, predict);
                                        }},
                             stage.what));
  if (!stage.trains() && !session_state_.stopped) {
    reports_.Report(StageFinished{stage.index + 1, session_state_.step});
  }
  ReturnFreedMemory(absl::StrCat("after stages[", stage.index, "]"));
  return absl::OkStatus();
}

absl::Status SessionImpl::Fit(FitUntil stage) {
  ASSIGN_OR_RETURN(RollCallPlan plan, CallNow());
  while (session_state_.step < stage.end) {
    ASSIGN_OR_RETURN(const bool ran_out, RanOut(plan));
    if (ran_out) break;
    if (plan.preempted) return commands_->EndHere();
    ASSIGN_OR_RETURN(const bool applied, commands_->Apply(plan.apply_commands));
    if (session_state_.stopped) return absl::OkStatus();
    if (applied) {
      ASSIGN_OR_RETURN(plan, CallNow());
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    profile_.BeginStep(session_state_.step + 1);
    // Commands that come with the plan of this call wait, because a step must follow its hook at
    // once.
    ASSIGN_OR_RETURN(const auto plan_after_hook, changes_->BeforeStep());
    if (plan_after_hook.has_value()) plan = *plan_after_hook;
    roll_call_.PostNext();
    RETURN_IF_ERROR(Step(plan));
    ASSIGN_OR_RETURN(plan, roll_call_.AwaitNext());
    // The whole duration of a step, including its roll call. The step is not reported yet: its loss
    // is sent in the next call.
    roll_call_.SetSeconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    RETURN_IF_ERROR(profile_.EndStep(session_state_.step));
    ASSIGN_OR_RETURN(const auto boundary_plan, AtBoundary(&stage, plan));
    if (session_state_.stopped) return absl::OkStatus();
    if (boundary_plan.has_value()) plan = *boundary_plan;
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::Step(const RollCallPlan& plan) {
  reports_.Progress("training");
  ASSIGN_OR_RETURN(PendingStep step,
                   training_->stepper().Run({session_state_.step + 1, session_state_.position,
                                             plan.inputs, session_state_.learning_rate}));
  session_state_.position = sampler_->After(session_state_.position);
  ++session_state_.step;
  training_->UpdateAverages(session_state_.step);
  return roll_call_.TakeIn(std::move(step), plan.inputs.samples);
}

absl::StatusOr<std::optional<RollCallPlan>> SessionImpl::AtBoundary(FitUntil* stage,
                                                                    const RollCallPlan& next) {
  RETURN_IF_ERROR(background_.failure());
  const bool ran_out = !next.inputs.ran_out.empty();
  Due due = DueAfter(session_state_.step, ran_out, RulesOf(*stage));
  if (!due.any() && roll_call_.outcome() == StepOutcome::kApplied) return std::nullopt;
  // This call shows that training may continue from this step: its loss is finite on every rank, or
  // the step was skipped.
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  if (!due.any()) return plan;
  if (plan.preempted && ValidatesElsewhere(due, has_checkpoints())) {
    session_state_.validation_due = true;
    RETURN_IF_ERROR(commands_->EndHere());
    return plan;
  }
  bool best = false;
  if (due.validate) {
    ASSIGN_OR_RETURN(std::optional<bool> found, ValidateInFit(stage));
    if (!found.has_value()) {
      session_state_.validation_due = true;  // of the checkpoint that is saved now
      RETURN_IF_ERROR(RunToEnd([&]() -> absl::StatusOr<bool> {
        ASSIGN_OR_RETURN(found, ValidateInFit(stage));
        return found.has_value();
      }));
      if (session_state_.stopped) return plan;
      session_state_.validation_due = false;
    }
    best = *found;
    due = DueAfter(session_state_.step, ran_out, RulesOf(*stage));  // the stage may end here
  }
  if (due.last_save) {
    ASSIGN_OR_RETURN(const Saving::Saved saved, SaveLast());
    final_save_ = saved.status();
    if (best) BestSaved(final_save_);
  } else if (best) {
    RETURN_IF_ERROR(Save(/*command=*/0, [this](const auto& saved) { BestSaved(saved.status()); }));
  } else if (due.save) {
    RETURN_IF_ERROR(saving_->Save());
  }
  if (due.export_weights) RETURN_IF_ERROR(gathering_->Export(*job_.weights_export));
  return CallNow();
}

DueRules SessionImpl::RulesOf(const FitUntil& stage) const {
  return {.stage = stage,
          .checkpoints = has_checkpoints(),
          .save_every = job_.checkpoint.has_value() ? job_.checkpoint->every_steps : 0,
          .export_every = job_.weights_export.has_value() ? job_.weights_export->every_steps : 0,
          .total_steps = TotalSteps(stages_)};
}

absl::StatusOr<RollCallPlan> SessionImpl::CallNow() {
  RETURN_IF_ERROR(background_.failure());
  return roll_call_.CallNow();
}

absl::StatusOr<bool> SessionImpl::RanOut(const RollCallPlan& plan) {
  if (plan.inputs.ran_out.empty()) return false;
  ended_early_ = absl::StrCat(DescribeRanOut(plan.inputs.ran_out), " after step ",
                              session_state_.step, " (uneven_inputs: stop_at_first)");
  if (session_state_.step == 0)
    return absl::FailedPreconditionError(absl::StrCat(ended_early_, ": nothing can be trained"));
  return true;
}

void SessionImpl::BeginStage(const char* stage) {
  session_state_.stage = stage;
  reports_.Report(StageStarted{stage, session_state_.step});
}

absl::Status SessionImpl::EndTraining() {
  if (!trains() || training_over_) return absl::OkStatus();
  RETURN_IF_ERROR(background_.Await());
  // Commands that are due at this step may need what is freed.
  RETURN_IF_ERROR(RunToEnd([] { return true; }));
  if (session_state_.stopped) return absl::OkStatus();
  RETURN_IF_ERROR(background_.Await());
  // A job that could not save its last checkpoint, or that began at its end with another job's,
  // may be told to save one.
  if (has_checkpoints() && !saving_->HasOneOf(session_state_.step)) return absl::OkStatus();
  reports_.Progress("freeing what only training needs");
  trained_->Want(Mask(trained_->in_force().size(), false));
  RETURN_IF_ERROR(CallNow().status());  // the ranks compare what they want
  RETURN_IF_ERROR(training_->Release(session_state_.step));
  ReturnFreedMemory("after training");
  roll_call_.SetLayout(std::bit_cast<int64_t>(strategy()->layout_fingerprint()));
  training_over_ = true;
  return absl::OkStatus();
}

absl::Status SessionImpl::AwaitParameters() {
  if (strategy() != nullptr) RETURN_IF_ERROR(strategy()->AwaitParameters());
  // On a GPU a gather that has been waited for may still run, and may fail.
  device::Event::Now(device()).Await();
  return communicators().failure();
}

absl::Status SessionImpl::AwaitWeights() {
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(finite_->Check(session_state_.step, strategy()));
  return strategy()->VerifyParametersEqual(session_state_.step);
}

absl::Status SessionImpl::Export() {
  if (!export_.has_value()) return absl::OkStatus();
  reports_.Progress("exporting the weights");
  // An export during training has the same names.
  RETURN_IF_ERROR(background_.Await());
  if (job_.weights_export->from == ExportConfig::From::kBest) {
    ASSIGN_OR_RETURN(const std::string best, BestPath());
    // The values that were judged.
    const bool averages = job_.averages.has_value() && job_.averages->evaluate;
    RETURN_IF_ERROR(
        export_->WriteStored(*model_, best, averages ? checkpoint::kAverageSlot : "param"));
    return CallNow().status();
  }
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(ExportWeights());
  return CallNow().status();  // no rank ends before the weights have their final name
}

absl::Status SessionImpl::ExportWeights() {
  RETURN_IF_ERROR(finite_->Check(session_state_.step, strategy()));
  if (job_.weights_export->from != ExportConfig::From::kAverages) {
    return export_->Write(*model_, strategy());
  }
  ASSIGN_OR_RETURN(const auto scope, passes_.WithAverages(training_.get()));
  RETURN_IF_ERROR(export_->Write(*model_, strategy()));
  return scope->End();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const Identity& identity, const Job& job,
                                                         const SessionParts& parts) {
  at::set_num_threads(job.threads);  // of this thread, in which the session runs
  auto session = std::make_unique<SessionImpl>(identity, job, parts);
  const absl::Status built = Guarded("set-up", [&session] { return session->Build(); });
  // A job that has saved a checkpoint has read all its files before, so they are missing on this
  // node only.
  const bool ran_before = !parts.checkpoints.empty() || parts.had_checkpoints;
  const bool gone = absl::IsNotFound(built) || absl::IsPermissionDenied(built);
  if (ran_before && gone && CauseOf(built) == Cause::kNone) {
    return WithCause(
        Annotate(built,
                 "a file that the job could read before is missing; is the file system mounted on "
                 "this node?"),
        Cause::kNodeFault);
  }
  RETURN_IF_ERROR(built);
  return session;
}

}  // namespace muster::train
