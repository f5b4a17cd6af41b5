// What a session starts from: a checkpoint of its job, another job's checkpoint, or a file with the
// optimizer's state.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/optimizerfile/optimizer_source.h"
#include "common/status/status.h"
#include "worker/checkpoint/imported_state.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/session/loader.h"
#include "worker/train/start/continuation.h"
#include "worker/train/training/model_records.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

// A checkpoint waits at most this long for the reports before it.
constexpr absl::Duration kSettle = absl::Seconds(1);

bool HasAverages(const manifest::Manifest& manifest) {
  return std::any_of(
      manifest.pieces.begin(), manifest.pieces.end(),
      [](const manifest::Piece& piece) { return piece.slot == checkpoint::kAverageSlot; });
}

}  // namespace

absl::Status Loader::OpenCheckpoints() {
  const Job& job = opened_.job;
  const SessionParts& parts = opened_.parts;
  // A generation that starts from this checkpoint does not repeat the steps before it, so their
  // metrics must have been reported.
  const auto still_mine = [events = parts.events, lease = parts.lease] {
    events->Settle(kSettle);
    return lease == nullptr ? absl::OkStatus() : lease->StillMine();
  };
  ASSIGN_OR_RETURN(loaded_.checkpoints,
                   Checkpoints::Open(opened_.identity, *job.checkpoint, parts.checkpoints,
                                     StrategyName(job.strategy), agreed_.model->kind(), parts.files,
                                     parts.events, still_mine, opened_.disk));
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(loaded_.restored,
                   loaded_.checkpoints->Restore(
                       [this](const manifest::Manifest& manifest) { return StateFor(manifest); }));
  const Checkpoints::Restored& restored = loaded_.restored;
  if (restored.path.empty()) return absl::OkStatus();
  if (opened_.leader()) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    spdlog::info("{}: checked and loaded in {:.3f} s", restored.path, took.count());
  }
  Restore(restored);
  // A later decision than that which the checkpoint has.
  if (restored.generation < parts.learning_rate_since && job.optimizer.has_value()) {
    opened_.state.learning_rate = job.optimizer->lr;
  }
  loaded_.started_from = restored.path;
  return absl::OkStatus();
}

checkpoint::State Loader::State() const {
  return StateOf(*agreed_.model, loaded_.training.get(), opened_.parts.control->world_size());
}

absl::StatusOr<checkpoint::ModelRecords> Loader::Records() const {
  return RecordsOf(opened_.job, *agreed_.model, State(), opened_.state.learning_rate,
                   agreed_.trained->in_force(), loaded_.training->HasState());
}

void Loader::Restore(const Checkpoints::Restored& restored) {
  const checkpoint::SavePoint& point = restored.point;
  const std::vector<manifest::SamplingRecord> own = opened_.state.sampling;
  opened_.state.ResumeFrom(point);
  if (loaded_.trains()) GoOnWithData(own.back(), restored.world_size);
  agreed_.trained->RestorePending(point.steering.pending);
  loaded_.commands = {point.last_command, point.steering.waiting_commands};
}

void Loader::GoOnWithData(const manifest::SamplingRecord& own, int64_t world_size) {
  SessionState& state = opened_.state;
  Continuation continuation = Continue(
      {state.step, state.position, state.sampling, world_size},
      {own, opened_.parts.control->world_size(), opened_.job.stages, state.validations.ended});
  state.sampling = std::move(continuation.sampling);
  state.position = continuation.position;
  state.validation_due = state.validation_due || continuation.pass_due;
  if (!opened_.leader()) return;
  for (const auto& [reason, text] : continuation.told) {
    spdlog::warn("{}", text);
    opened_.reports.Report(Notice{reason, text, state.step});
  }
}

absl::Status Loader::StartFromOther() {
  if (!opened_.job.start.has_value()) return absl::OkStatus();
  constexpr char kSetting[] = "start.checkpoint";
  opened_.reports.Progress("loading another job's checkpoint");
  const auto restored = Checkpoints::RestoreFrom(
      opened_.job.start->checkpoint, opened_.identity, opened_.parts.files,
      [this](const manifest::Manifest& manifest) { return StateFromOther(manifest); });
  if (!restored.ok()) return Annotate(restored.status(), kSetting);
  if (opened_.leader()) {
    spdlog::info("{}: {}, written after step {}", kSetting, restored->path, restored->point.step);
  }
  TellOfAverages(*restored);
  if (opened_.job.start->what != StartConfig::What::kEverything || !loaded_.trains())
    return absl::OkStatus();
  Restore(*restored);
  if (opened_.parts.learning_rate_since > 0)
    opened_.state.learning_rate = opened_.job.optimizer->lr;
  loaded_.started_from = restored->path;
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::State> Loader::StateFromOther(const manifest::Manifest& manifest) {
  const StartConfig::What what = opened_.job.start->what;
  loaded_.first_weights = manifest.first_weights;
  if (!loaded_.tokenizer.known()) loaded_.tokenizer = manifest.tokenizer;
  if (what != StartConfig::What::kWeights && loaded_.trains()) {
    ASSIGN_OR_RETURN(const checkpoint::ModelRecords own, Records());
    RETURN_IF_ERROR(SameOptimizers(manifest, own));
  }
  if (what == StartConfig::What::kEverything && loaded_.trains()) return StateFor(manifest);
  std::set<std::string> saved;  // parameters whose state is taken
  if (what == StartConfig::What::kWeightsAndOptimizer && loaded_.trains()) {
    saved = WithState(manifest);
    loaded_.training->AddFrozenState(FrozenOf(saved));
    loaded_.training->ExpectAverages(HasAverages(manifest));
  }
  return checkpoint::Only(State(), [&saved](const checkpoint::StateItem& item) {
    if (checkpoint::IsOptimizers(item)) return saved.contains(item.parameter);
    return item.slot != "scaler";
  });
}

void Loader::TellOfAverages(const Checkpoints::Restored& restored) const {
  if (!opened_.job.evaluation.averages.has_value() || !opened_.leader()) return;
  if (loaded_.training->averages()->begun()) return;
  const std::string text =
      absl::StrCat("ema: the averages begin as the parameters of ", restored.path,
                   opened_.job.start->what == StartConfig::What::kWeights
                       ? ", of which only the weights are taken (start.what)"
                       : ", which has no averages");
  spdlog::info("{}", text);
  opened_.reports.Report(Notice{"AVERAGES_BEGIN_ANEW", text, opened_.state.step});
}

std::set<std::string> Loader::WithState(const manifest::Manifest& manifest) const {
  std::set<std::string> saved;
  for (const manifest::ParameterRecord& parameter : manifest.parameters) {
    if (parameter.ever_trained) saved.insert(parameter.name);
  }
  if (!manifest.parameters.empty()) return saved;
  std::set<std::string> slots;
  for (const auto& own : loaded_.training->slots()) {
    for (const optim::StateSlot& slot : own) slots.insert(slot.name);
  }
  for (const manifest::Piece& piece : manifest.pieces) {
    if (slots.contains(piece.slot)) saved.insert(piece.parameter);
  }
  return saved;
}

Mask Loader::FrozenOf(const std::set<std::string>& names) const {
  Mask frozen;
  for (size_t i = 0; i < agreed_.trained->in_force().size(); ++i) {
    frozen.push_back(!agreed_.trained->in_force()[i] && names.contains(agreed_.trained->name(i)));
  }
  return frozen;
}

absl::StatusOr<checkpoint::State> Loader::StateFor(const manifest::Manifest& manifest) {
  loaded_.first_weights = manifest.first_weights;
  if (!loaded_.tokenizer.known()) loaded_.tokenizer = manifest.tokenizer;
  if (!loaded_.trains()) return State();
  const int64_t world_size = opened_.parts.control->world_size();
  if (!agreed_.data.train->own_sizes.empty() && manifest.world_size != world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.train.per_rank: the checkpoint was written by ", manifest.world_size,
        " ranks, and the job has ", world_size,
        ": with files of each rank's own the place in the data cannot be kept; start.what: "
        "weights+optimizer begins the data anew"));
  }
  const manifest::Steering& steering = manifest.steering;
  // Also without a version: another checkpoint may have been tried before. The rules of another job
  // count only where the job file has none.
  const bool steered = steering.trainability_version > 0 &&
                       (IsOwn(manifest, opened_.identity) || opened_.job.model.trainable.empty());
  agreed_.trained->Restore(steered ? steering.trainability_version : 1,
                           steered ? steering.rules : opened_.job.model.trainable);
  loaded_.training->ExpectAverages(false);  // of another checkpoint that was tried before
  if (agreed_.trained->first_change() >= 0) {
    RETURN_IF_ERROR(loaded_.training->Refresh(manifest.step).status());
  }
  loaded_.training->AddFrozenState(FrozenOf(WithState(manifest)));
  loaded_.training->ExpectAverages(HasAverages(manifest));
  return State();
}

absl::Status Loader::ImportOptimizerState() {
  const std::string& path = opened_.job.optimizer->state;
  if (path.empty()) return absl::OkStatus();
  opened_.reports.Progress("loading the optimizer's state");
  constexpr char kSetting[] = "optimizer.state";
  ASSIGN_OR_RETURN(const checkpoint::ModelRecords records, Records());
  const auto source =
      optimizerfile::OptimizerSource::Open(path, records.optimizer, records.parameters);
  if (!source.ok()) return Annotate(source.status(), kSetting);
  checkpoint::ImportedSlots slots;
  for (size_t i = 0; i < loaded_.training->slots().size(); ++i) {
    auto& own = slots[agreed_.trained->name(i)];
    for (const optim::StateSlot& slot : loaded_.training->slots()[i]) {
      own.push_back({slot.name, slot.scalar});
    }
  }
  RETURN_IF_ERROR(Annotate(checkpoint::CheckImport(*source, records.parameters, slots),
                           absl::StrCat(kSetting, ": ", path)));
  // A file that is another one on some node would give this rank other collectives than its peers.
  RETURN_IF_ERROR(
      AgreeOn("the optimizer's state", checkpoint::LinesOf(*source), opened_.parts.control));
  std::set<std::string> in_file;
  for (const auto& [name, values] : source->state()) in_file.insert(name);
  loaded_.training->AddFrozenState(FrozenOf(in_file));
  checkpoint::FillImported(*source, slots, State());
  if (!opened_.leader()) return absl::OkStatus();
  for (const std::string& difference : source->differences()) {
    spdlog::warn("{}: {}: {}", kSetting, path, difference);
    opened_.reports.Report(Notice{"OPTIMIZER_STATE_DIFFERS",
                                  absl::StrCat(kSetting, ": ", path, ": ", difference),
                                  opened_.state.step});
  }
  return absl::OkStatus();
}

}  // namespace muster::train
