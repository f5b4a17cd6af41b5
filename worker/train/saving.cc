#include "worker/train/saving.h"

#include "common/status/status.h"

namespace muster::train {

void Saving::ResumeFrom(const Checkpoints::Restored& restored) {
  newest_ = CheckpointWritten{restored.point.step, restored.path, restored.generation};
}

checkpoint::SavePoint Saving::Point() const {
  checkpoint::SavePoint point;
  parts_.session_state->Describe(parts_.jobs_rate, &point);
  const CommandSchedule::Position commands = parts_.commands->position();
  point.last_command = commands.taken;
  point.steering.waiting_commands = commands.waiting;
  point.steering.trainability_version = parts_.trained->version();
  point.steering.rules = parts_.trained->rules();
  point.steering.pending = parts_.trained->PendingNames();
  return point;
}

absl::StatusOr<SaveResult> Saving::Save(SaveKind kind) {
  const int64_t step = parts_.session_state->step;
  // Commands that took effect at this step after that checkpoint are carried out again by a session
  // that starts from it.
  if (newest_.has_value() && newest_->step == step) return SaveResult();
  parts_.reports->Progress("saving a checkpoint");
  parallel::Strategy& strategy = parts_.strategy();
  RETURN_IF_ERROR(parts_.await_parameters());
  RETURN_IF_ERROR(parts_.finite->Check(step, &strategy));
  RETURN_IF_ERROR(strategy.VerifyParametersEqual(step));
  const checkpoint::SavePoint point = Point();
  const checkpoint::State state = parts_.state();
  ASSIGN_OR_RETURN(const checkpoint::ModelRecords records, parts_.records(state));
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const Checkpoints::Saved saved,
                     parts_.checkpoints->Save(point, state, records));
    if (saved.files.ok()) {
      newest_ = CheckpointWritten{step, saved.path, parts_.generation};
      return SaveResult();
    }
    // Rank 0's lease is over. The files are not at fault, and the next generation saves.
    if (absl::IsUnavailable(saved.files)) return saved.files;
    if (kind != SaveKind::kOnTheWay &&
        parts_.attempts->TryAgain(saved.files, attempt, "saving a checkpoint")) {
      continue;
    }
    parts_.reports->Report(CheckpointFailed{step, Message(saved.files)});
    return SaveResult{saved.files};
  }
}

}  // namespace muster::train
