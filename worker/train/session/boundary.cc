// The parts of Running (running.h) outside of the training loop:
// - the work after a step of a fit stage: checkpoints, validation, exports;
// - the validation pass that an earlier session left undone;
// - the end of training, and the export at the end of the job.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/state.h"
#include "worker/memory/resident.h"
#include "worker/train/session/running.h"

namespace muster::train {
namespace {

// The number of tokens at the end of a prompt that a notice shows.
constexpr size_t kShownOfPrompt = 32;

// Returns tokens as a person reads them: their text in quotes, or numbers if there is no text.
std::string Shown(const std::vector<int64_t>& tokens, const std::string& text) {
  if (text.empty()) return absl::StrJoin(tokens, " ");
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void ReturnFreedMemory(const std::string& when) {
  memory::ReturnFreedMemory();
  spdlog::info("{}: this process has {:.2f} MiB in memory", when,
               static_cast<double>(memory::ResidentBytes()) / (1 << 20));
}

absl::StatusOr<std::optional<RollCallPlan>> Running::AtBoundary(FitUntil* stage,
                                                                const RollCallPlan& next) {
  RETURN_IF_ERROR(background_.failure());
  const bool ran_out = !next.inputs.ran_out.empty();
  Due due = DueAfter(state().step, ran_out, RulesOf(*stage));
  if (!due.any() && calls_.each_step.outcome() == StepOutcome::kApplied) return std::nullopt;
  // The call shows that training may continue: the loss of this step is finite on every rank, or
  // the step was skipped.
  ASSIGN_OR_RETURN(const RollCallPlan plan, calls_.between.CallNow());
  if (!due.any()) return plan;
  if (plan.preempted && ValidatesElsewhere(due, has_checkpoints())) {
    state().validation_due = true;
    RETURN_IF_ERROR(commands_.EndHere());
    return plan;
  }
  bool best = false;
  if (due.validate) {
    ASSIGN_OR_RETURN(std::optional<bool> found, ValidateInFit(stage));
    if (!found.has_value()) {
      state().validation_due = true;  // for the checkpoint that is saved now
      RETURN_IF_ERROR(RunToEnd([&]() -> absl::StatusOr<bool> {
        ASSIGN_OR_RETURN(found, ValidateInFit(stage));
        return found.has_value();
      }));
      if (state().stopped) return plan;
      *stage = Planned(*stage);
      state().validation_due = false;
    }
    best = *found;
    due = DueAfter(state().step, ran_out, RulesOf(*stage));  // the stage may end here
  }
  if (due.last_save) {
    ASSIGN_OR_RETURN(const Saver::Saved saved, writers_.best.SaveLast());
    final_save_ = saved.status();
    if (best) writers_.best.Heard(final_save_);
  } else if (best) {
    RETURN_IF_ERROR(writers_.best.SaveBest());
  } else if (due.save) {
    RETURN_IF_ERROR(writers_.saving->Save());
  }
  if (due.export_weights) RETURN_IF_ERROR(writers_.gathering->Export(*job().weights_export));
  return calls_.between.CallNow();
}

DueRules Running::RulesOf(const FitUntil& stage) const {
  return {.stage = stage,
          .checkpoints = has_checkpoints(),
          .save_every = job().checkpoint.has_value() ? job().checkpoint->every_steps : 0,
          .export_every = job().weights_export.has_value() ? job().weights_export->every_steps : 0,
          .total_steps = TotalSteps(loaded_->stages)};
}

absl::StatusOr<std::optional<bool>> Running::ValidateInFit(FitUntil* stage) {
  ASSIGN_OR_RETURN(const std::optional<v1::Evaluation> evaluation,
                   forwards_.evaluation.Run(SessionEvaluation::Set::kValidate));
  if (!evaluation.has_value()) return std::nullopt;
  RETURN_IF_ERROR(ReportSample());
  if (!stage->passes.any()) return false;
  ASSIGN_OR_RETURN(const BestCheckpoint::Judged judged, writers_.best.Judge(*stage, *evaluation));
  const int64_t step = state().step;
  if (!judged.stop.empty() && step < stage->end) {
    reports().Report(Notice{"EARLY_STOPPED",
                            absl::StrCat("stages[", stage->stage, "].fit ends after step ", step,
                                         " instead of ", stage->end, ": ", judged.stop),
                            step});
    state().validations.ended.emplace_back(stage->stage, step);
    loaded_->stages = PlanOf(job(), state());
    stage->end = step;
  }
  return judged.best;
}

absl::Status Running::PrepareSample(int64_t stage) {
  const auto& asked = std::get<FitStage>(job().stages[stage]).sample;
  sample_.reset();
  if (!asked.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto request, forwards_.generator.Prepare(*asked));
  RETURN_IF_ERROR(Annotate(request.status(), absl::StrCat("stages[", stage, "].fit")));
  sample_ = *std::move(request);
  return absl::OkStatus();
}

absl::Status Running::ReportSample() {
  if (!sample_.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto made, forwards_.generator.Sample(*sample_));
  // Logits that are not finite: training has its own checks.
  if (!made.ok()) return absl::OkStatus();
  const size_t shown = std::min(made->prompt.size(), kShownOfPrompt);
  const std::vector<int64_t> prompt(made->prompt.end() - static_cast<ptrdiff_t>(shown),
                                    made->prompt.end());
  const auto before = made->text.empty() ? std::nullopt : forwards_.generator.TextOf(prompt);
  reports().Report(Notice{"SAMPLE",
                          absl::StrCat("after ", shown < made->prompt.size() ? "..." : "",
                                       Shown(prompt, before.value_or("")),
                                       " the model writes: ", Shown(made->tokens, made->text)),
                          state().step});
  return absl::OkStatus();
}

absl::Status Running::ValidateDue() {
  const auto validate = [this]() -> absl::StatusOr<bool> {
    auto stage = FitOfStep(loaded_->stages, state().step);
    if (!stage.has_value()) {
      ASSIGN_OR_RETURN(const auto evaluation,
                       forwards_.evaluation.Run(SessionEvaluation::Set::kValidate));
      return evaluation.has_value();
    }
    RETURN_IF_ERROR(PrepareSample(stage->stage));
    ASSIGN_OR_RETURN(const std::optional<bool> best, ValidateInFit(&*stage));
    if (!best.has_value()) return false;
    state().validation_due = false;  // for the checkpoint that is saved now
    if (*best) RETURN_IF_ERROR(writers_.best.SaveBest());
    return true;
  };
  if (forwards_.evaluation.has_validation()) {
    BeginStage("validate");
    RETURN_IF_ERROR(RunToEnd(validate));
  }
  state().validation_due = false;
  return absl::OkStatus();
}

absl::Status Running::EndTraining() {
  if (!loaded_->trains() || state().training_over) return absl::OkStatus();
  RETURN_IF_ERROR(background_.Await());
  // Commands that are due at this step may need the memory.
  RETURN_IF_ERROR(RunToEnd([] { return true; }));
  if (state().stopped) return absl::OkStatus();
  RETURN_IF_ERROR(background_.Await());
  // Keeps the training memory if this step has no checkpoint, because a command may still save one.
  // This is so when the last save failed, or when the job started here from another job's
  // checkpoint.
  if (has_checkpoints() && !writers_.saving->HasOneOf(state().step)) return absl::OkStatus();
  reports().Progress("freeing what only training needs");
  TrainedParameters& trained = *loaded_->agreed->trained;
  trained.Want(Mask(trained.in_force().size(), false));
  RETURN_IF_ERROR(calls_.between.CallNow().status());  // the ranks compare the masks that they want
  RETURN_IF_ERROR(loaded_->training->Release(state().step));
  ReturnFreedMemory("after training");
  state().training_over = true;
  return absl::OkStatus();
}

absl::Status Running::Export() {
  if (!writers_.weights_export.has_value()) return absl::OkStatus();
  reports().Progress("exporting the weights");
  // An export during training uses the same names.
  RETURN_IF_ERROR(background_.Await());
  if (job().weights_export->from == ExportConfig::From::kBest) {
    ASSIGN_OR_RETURN(const std::string best, writers_.best.Path());
    // The slot of the values that the validation used.
    const bool averages =
        job().evaluation.averages.has_value() && job().evaluation.averages->evaluate;
    RETURN_IF_ERROR(writers_.weights_export->WriteStored(
        live_.model(), best, averages ? checkpoint::kAverageSlot : "param"));
    return calls_.between.CallNow().status();
  }
  RETURN_IF_ERROR(live_.AwaitParameters());
  RETURN_IF_ERROR(loaded_->agreed->finite->Check(state().step, live_.strategy()));
  std::unique_ptr<EvaluationScope> averages;
  if (job().weights_export->from == ExportConfig::From::kAverages) {
    ASSIGN_OR_RETURN(averages, forwards_.passes.WithAverages(live_.training()));
  }
  RETURN_IF_ERROR(writers_.weights_export->Write(live_.model(), live_.strategy()));
  if (averages != nullptr) RETURN_IF_ERROR(averages->End());
  // No rank ends before the weights have their final name.
  return calls_.between.CallNow().status();
}

}  // namespace muster::train
