// What the validation passes of fit stages decide: where a stage ends early, and which checkpoint
// is the best one.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/manifest/manifest.h"
#include "common/manifest/name.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/train/evaluate/evaluation_totals.h"
#include "worker/train/job/improvement.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/session/session_impl.h"
#include "worker/train/start/continuation.h"

namespace muster::train {

std::vector<PlannedStage> SessionImpl::Plan() const {
  return PlanStages(job_.stages, TimelineOf(session_state_.sampling),
                    session_state_.validations.ended);
}

absl::Status SessionImpl::CheckMetrics() const {
  // Whether a model's own loss tells how many are right is known after the first pass only.
  const bool mse = job_.loss.has_value() && job_.loss->kind == models::LossKind::kMse;
  const GivenMetrics given{.accuracy = !mse,
                           .top_k_accuracy = !mse && CountsTopK(*model_),
                           .perplexity = model_->HasPerplexity()};
  for (size_t i = 0; i < job_.stages.size(); ++i) {
    const auto* fit = std::get_if<FitStage>(&job_.stages[i]);
    if (fit == nullptr) continue;
    RETURN_IF_ERROR(train::CheckMetrics(fit->passes, given, static_cast<int64_t>(i)));
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::FindBest() {
  auto& best = session_state_.validations.best;
  if (!best.has_value() || !has_checkpoints()) return absl::OkStatus();
  const std::string path = checkpoints_->PathOf(manifest::FinalName(best->step, best->generation));
  std::string lost;
  if (reports_.leader()) {
    const absl::Status read = manifest::Read(path).status();
    // What cannot be read now may be read later.
    if (absl::IsNotFound(read) || absl::IsDataLoss(read)) lost = Message(read);
    const auto same = [&path](const std::string& dropped) {
      return manifest::NameOfDirectory(dropped) == manifest::NameOfDirectory(path);
    };
    const auto& dropped = parts_.dropped_checkpoints;
    if (std::any_of(dropped.begin(), dropped.end(), same)) {
      lost = absl::StrCat(path, " is being removed");
    }
  }
  ASSIGN_OR_RETURN(lost, checkpoint::TellAll(*parts_.files, lost, "the best checkpoint"));
  if (lost.empty()) {
    // The coordinator may not know it: a checkpoint that was found does not tell it.
    reports_.Report(CheckpointWritten{
        .step = best->step, .path = path, .generation = best->generation, .best = true});
    return absl::OkStatus();
  }
  reports_.Report(Notice{"BEST_CHECKPOINT_LOST",
                         absl::StrCat("the best checkpoint, of step ", best->step,
                                      ", is not there any more, and the next validation pass "
                                      "becomes the best one: ",
                                      lost),
                         session_state_.step});
  best.reset();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<bool>> SessionImpl::ValidateInFit(FitUntil* stage) {
  ASSIGN_OR_RETURN(const std::optional<v1::Evaluation> evaluation, Validate());
  if (!evaluation.has_value()) return std::nullopt;
  if (!stage->passes.any()) return false;
  const absl::Status given =
      train::CheckMetrics(stage->passes, GivenBy(*evaluation), stage->stage);
  // What was trained until here is not lost by this end.
  if (!given.ok() && has_checkpoints()) RETURN_IF_ERROR(saving_->SaveLast().status());
  RETURN_IF_ERROR(given);
  // Whether the best checkpoint until now could be written.
  RETURN_IF_ERROR(background_.Await());
  const int64_t step = session_state_.step;
  former_best_ = session_state_.validations.best;
  Judgement judgement = Judge(stage->passes,
                              {.stage = stage->stage,
                               .step = step,
                               .generation = identity_.generation,
                               .evaluation = &*evaluation},
                              std::move(session_state_.validations));
  session_state_.validations = std::move(judgement.record);
  if (!judgement.stop.empty() && step < stage->end) {
    reports_.Report(Notice{"EARLY_STOPPED",
                           absl::StrCat("stages[", stage->stage, "].fit ends after step ", step,
                                        " instead of ", stage->end, ": ", judgement.stop),
                           step});
    session_state_.validations.ended.emplace_back(stage->stage, step);
    stages_ = Plan();
    stage->end = step;
  }
  return judgement.best;
}

absl::StatusOr<bool> SessionImpl::ValidateLeft() {
  auto stage = FitOfStep(stages_, session_state_.step);
  if (!stage.has_value()) {
    ASSIGN_OR_RETURN(const auto evaluation, Validate());
    return evaluation.has_value();
  }
  ASSIGN_OR_RETURN(const std::optional<bool> best, ValidateInFit(&*stage));
  if (!best.has_value()) return false;
  session_state_.validation_due = false;  // of the checkpoint that is saved now
  if (!*best) return true;
  RETURN_IF_ERROR(Save(/*command=*/0, [this](const auto& saved) { BestSaved(saved.status()); }));
  return true;
}

void SessionImpl::BestSaved(const absl::Status& saved) {
  if (saved.ok()) return;
  unsaved_best_ = std::exchange(session_state_.validations.best, former_best_);
}

absl::StatusOr<bool> SessionImpl::BestAgain() {
  RETURN_IF_ERROR(background_.Await());  // it may be writing that checkpoint
  if (!unsaved_best_.has_value() || unsaved_best_->step != session_state_.step) return false;
  former_best_ = std::exchange(session_state_.validations.best, *unsaved_best_);
  unsaved_best_.reset();
  return true;
}

absl::Status SessionImpl::Save(int64_t command, Saving::Told told) {
  ASSIGN_OR_RETURN(const bool best, BestAgain());
  if (!best) return saving_->Save(command, std::move(told));
  return saving_->Save(command, [this, told = std::move(told)](const Saving::Saved& saved) {
    BestSaved(saved.status());
    if (told) told(saved);
  });
}

absl::StatusOr<Saving::Saved> SessionImpl::SaveLast() {
  ASSIGN_OR_RETURN(const bool best, BestAgain());
  ASSIGN_OR_RETURN(const Saving::Saved saved, saving_->SaveLast());
  if (best) BestSaved(saved.status());
  return saved;
}

absl::StatusOr<std::string> SessionImpl::BestPath() const {
  const auto& best = session_state_.validations.best;
  if (best.has_value()) {
    return checkpoints_->PathOf(manifest::FinalName(best->step, best->generation));
  }
  return WithCause(
      absl::NotFoundError(
          "export.from: best: the job has no best checkpoint, because no validation pass of a "
          "stage "
          "with keep_best gave a finite number, or because its checkpoint could not be written"),
      Cause::kFinalSaveFailed);
}

}  // namespace muster::train
