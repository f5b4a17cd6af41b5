#include "worker/train/session/best_checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/manifest/manifest.h"
#include "common/manifest/name.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/train/job/improvement.h"
#include "worker/train/ranks/failure.h"

namespace muster::train {

absl::Status FindBest(const Checkpoints& checkpoints, const SessionParts& parts,
                      const SessionReports& reports, SessionState* state) {
  auto& best = state->validations.best;
  if (!best.has_value()) return absl::OkStatus();
  const std::string path = checkpoints.PathOf(manifest::FinalName(best->step, best->generation));
  std::string lost;
  if (reports.leader()) {
    const absl::Status read = manifest::Read(path).status();
    // Only these errors count: a checkpoint with another error may be readable later.
    if (absl::IsNotFound(read) || absl::IsDataLoss(read)) lost = Message(read);
    const auto same = [&path](const std::string& dropped) {
      return manifest::NameOfDirectory(dropped) == manifest::NameOfDirectory(path);
    };
    const auto& dropped = parts.checkpoints.dropped;
    if (std::any_of(dropped.begin(), dropped.end(), same)) {
      lost = absl::StrCat(path, " is being removed");
    }
  }
  ASSIGN_OR_RETURN(lost, checkpoint::TellAll(*parts.files, lost, "the best checkpoint"));
  if (lost.empty()) {
    // The coordinator may not know that this checkpoint is the best one: the report of a found
    // checkpoint does not say so.
    reports.Report(CheckpointWritten{
        .step = best->step, .path = path, .generation = best->generation, .best = true});
    return absl::OkStatus();
  }
  reports.Report(Notice{"BEST_CHECKPOINT_LOST",
                        absl::StrCat("the best checkpoint, of step ", best->step,
                                     ", is not there any more, and the next validation pass "
                                     "becomes the best one: ",
                                     lost),
                        state->step});
  best.reset();
  return absl::OkStatus();
}

absl::StatusOr<BestCheckpoint::Judged> BestCheckpoint::Judge(const FitUntil& stage,
                                                             const v1::Evaluation& evaluation) {
  const absl::Status given = CheckMetrics(stage.passes, GivenBy(evaluation), stage.stage);
  // A last checkpoint keeps the training that this error would lose.
  if (!given.ok() && deps_.saving != nullptr) RETURN_IF_ERROR(deps_.saving->SaveLast().status());
  RETURN_IF_ERROR(given);
  // A failed save changes the best checkpoint, so the save must end first.
  RETURN_IF_ERROR(deps_.background->Await());
  manifest::ValidationRecord& validations = deps_.session_state->validations;
  former_ = validations.best;
  Judgement judgement = train::Judge(stage.passes,
                                     {.stage = stage.stage,
                                      .step = deps_.session_state->step,
                                      .generation = deps_.generation,
                                      .evaluation = &evaluation},
                                     std::move(validations));
  validations = std::move(judgement.record);
  return Judged{judgement.best, std::move(judgement.stop)};
}

void BestCheckpoint::Heard(const absl::Status& saved) {
  if (saved.ok()) return;
  unsaved_ = std::exchange(deps_.session_state->validations.best, former_);
}

absl::StatusOr<bool> BestCheckpoint::Again() {
  RETURN_IF_ERROR(deps_.background->Await());  // a task may still write the best checkpoint
  if (!unsaved_.has_value() || unsaved_->step != deps_.session_state->step) return false;
  former_ = std::exchange(deps_.session_state->validations.best, *unsaved_);
  unsaved_.reset();
  return true;
}

absl::Status BestCheckpoint::SaveBest() {
  return Save(/*command=*/0, [this](const Saved& saved) { Heard(saved.status()); });
}

absl::Status BestCheckpoint::Save(int64_t command, Told told) {
  ASSIGN_OR_RETURN(const bool best, Again());
  if (!best) return deps_.saving->Save(command, std::move(told));
  return deps_.saving->Save(command, [this, told = std::move(told)](const Saved& saved) {
    Heard(saved.status());
    if (told) told(saved);
  });
}

absl::StatusOr<Saver::Saved> BestCheckpoint::SaveLast() {
  ASSIGN_OR_RETURN(const bool best, Again());
  ASSIGN_OR_RETURN(const Saved saved, deps_.saving->SaveLast());
  if (best) Heard(saved.status());
  return saved;
}

absl::StatusOr<std::string> BestCheckpoint::Path() const {
  const auto& best = deps_.session_state->validations.best;
  if (best.has_value()) {
    return deps_.checkpoints->PathOf(manifest::FinalName(best->step, best->generation));
  }
  return WithCause(
      absl::NotFoundError(
          "export.from: best: the job has no best checkpoint, because no validation pass of a "
          "stage "
          "with keep_best gave a finite number, or because its checkpoint could not be written"),
      Cause::kFinalSaveFailed);
}

}  // namespace muster::train
