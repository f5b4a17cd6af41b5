#include "worker/train/save/saving.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/shard.h"
#include "worker/train/step/finite.h"

namespace muster::train {

Saving::Saving(Dependencies deps) : deps_(std::move(deps)) {
  const Checkpoints::Restored& restored = deps_.restored;
  if (restored.path.empty()) return;
  newest_ = CheckpointWritten{
      .step = restored.point.step, .path = restored.path, .generation = restored.generation};
  const auto& best = restored.point.steering.validations.best;
  newest_->best = best.has_value() && best->step == newest_->step;
}

checkpoint::SavePoint Saving::Point() const {
  checkpoint::SavePoint point;
  deps_.session_state->Describe(deps_.jobs_rate, &point);
  const CommandSchedule::Position commands = deps_.commands->position();
  point.last_command = commands.taken;
  point.steering.waiting_commands = commands.waiting;
  point.steering.trainability_version = deps_.trained->version();
  point.steering.rules = deps_.trained->rules();
  point.steering.pending = deps_.trained->PendingNames();
  return point;
}

bool Saving::IsBest(const checkpoint::SavePoint& point) const {
  const auto& best = point.steering.validations.best;
  return best.has_value() && best->step == point.step && best->generation == deps_.generation;
}

absl::StatusOr<std::optional<Saving::Contents>> Saving::Prepare(int64_t command) {
  const Clock::time_point begun = Clock::now();
  RETURN_IF_ERROR(deps_.background->Await());
  const int64_t step = deps_.session_state->step;
  const checkpoint::SavePoint point = Point();
  // A session that starts from the existing checkpoint carries out again the commands that took
  // effect at this step after the save.
  const bool there = newest_.has_value() && newest_->step == step;
  if (there && (newest_->best || !IsBest(point))) return std::nullopt;
  deps_.reports->Progress("saving a checkpoint");
  RETURN_IF_ERROR(deps_.source->AwaitState());
  Contents contents{.point = point,
                    .state = deps_.source->State(),
                    .records = {},
                    .command = command,
                    .begun = begun};
  ASSIGN_OR_RETURN(contents.records, deps_.source->Records(contents.state));
  return contents;
}

absl::StatusOr<Checkpoints::Saved> Saving::Write(const Contents& contents) {
  const int64_t step = contents.point.step;
  const absl::Status mine = FiniteCheck::CheckParameters(step, contents.state);
  ASSIGN_OR_RETURN(const auto results,
                   checkpoint::Exchange(*deps_.communicator, checkpoint::ToResult(mine),
                                        "whether the parameters are finite", step));
  RETURN_IF_ERROR(mine.ok() ? checkpoint::Combine(results) : mine);
  deps_.writing->Begin(contents.command, checkpoint::BytesWritten(contents.state, deps_.rank));
  auto saved = deps_.checkpoints->Save(contents.point, contents.state, contents.records);
  deps_.writing->End();
  return saved;
}

absl::StatusOr<Saving::Saved> Saving::Take(const Contents& contents,
                                           const Checkpoints::Saved& saved) {
  const int64_t step = contents.point.step;
  if (saved.files.ok()) {
    const double seconds = std::chrono::duration<double>(Clock::now() - contents.begun).count();
    newest_ = CheckpointWritten{
        .step = step,
        .path = saved.path,
        .generation = deps_.generation,
        .bytes = saved.bytes,
        .stall_seconds = contents.stall_seconds > 0 ? contents.stall_seconds : seconds,
        .seconds = seconds,
        .best = IsBest(contents.point)};
    deps_.reports->Report(*newest_);
    return *newest_;
  }
  // Rank 0's lease is over. The files are not at fault. The next generation saves.
  if (absl::IsUnavailable(saved.files)) return saved.files;
  deps_.reports->Report(CheckpointFailed{step, Message(saved.files)});
  return Saved(saved.files);
}

absl::Status Saving::Save(int64_t command, Told told) {
  ASSIGN_OR_RETURN(std::optional<Contents> contents, Prepare(command));
  if (!contents.has_value()) {
    if (told) told(*newest_);
    return absl::OkStatus();
  }
  const auto write = [this, told = std::move(told)](const Contents& contents) -> absl::Status {
    ASSIGN_OR_RETURN(const Checkpoints::Saved files, Write(contents));
    ASSIGN_OR_RETURN(const Saved saved, Take(contents, files));
    if (told) told(saved);
    return absl::OkStatus();
  };
  const auto wait = [&] {
    deps_.background->Skip();
    return write(*contents);
  };
  if (!deps_.while_training) return wait();
  auto copy = deps_.background->Copy(contents->state);
  if (!copy.ok()) {
    spdlog::warn("{}; training waits until the checkpoint is written", Message(copy.status()));
    return wait();
  }
  contents->state = *std::move(copy);
  contents->stall_seconds = std::chrono::duration<double>(Clock::now() - contents->begun).count();
  deps_.background->Start([write, contents = *std::move(contents)] { return write(contents); });
  return absl::OkStatus();
}

absl::StatusOr<Saving::Saved> Saving::SaveLast() {
  ASSIGN_OR_RETURN(const std::optional<Contents> contents, Prepare(/*command=*/0));
  if (!contents.has_value()) return Saved(*newest_);
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const Checkpoints::Saved saved, Write(*contents));
    const bool again = !saved.files.ok() && !absl::IsUnavailable(saved.files) &&
                       deps_.attempts->TryAgain(saved.files, attempt, "saving a checkpoint");
    if (!again) return Take(*contents, saved);
  }
}

}  // namespace muster::train
