// The start of a session from a checkpoint or from files.
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
#include "worker/train/session/loaded.h"
#include "worker/train/start/continuation.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

// The longest time that a checkpoint waits for earlier reports.
constexpr absl::Duration kSettle = absl::Seconds(1);

bool HasAverages(const manifest::Manifest& manifest) {
  return std::any_of(
      manifest.pieces.begin(), manifest.pieces.end(),
      [](const manifest::Piece& piece) { return piece.slot == checkpoint::kAverageSlot; });
}

checkpoint::State State(Loaded& loaded) {
  return StateOf(*loaded.agreed->model, loaded.training.get(),
                 loaded.opened().parts.control->world_size());
}

// Returns the records of a job that trains.
absl::StatusOr<checkpoint::ModelRecords> Records(Loaded& loaded) {
  return RecordsOf(loaded.opened().job, *loaded.agreed->model, State(loaded),
                   loaded.opened().state.learning_rate, loaded.agreed->trained->in_force(),
                   loaded.training->HasState());
}

// Returns the parameters of which the checkpoint has the optimizer's state.
std::set<std::string> WithState(Loaded& loaded, const manifest::Manifest& manifest) {
  std::set<std::string> saved;
  for (const manifest::ParameterRecord& parameter : manifest.parameters) {
    if (parameter.ever_trained) saved.insert(parameter.name);
  }
  if (!manifest.parameters.empty()) return saved;
  std::set<std::string> slots;
  for (const auto& own : loaded.training->slots()) {
    for (const optim::StateSlot& slot : own) slots.insert(slot.name);
  }
  for (const manifest::Piece& piece : manifest.pieces) {
    if (slots.contains(piece.slot)) saved.insert(piece.parameter);
  }
  return saved;
}

// Returns which parameters are frozen and have one of these names.
Mask FrozenOf(Loaded& loaded, const std::set<std::string>& names) {
  Mask frozen;
  for (size_t i = 0; i < loaded.agreed->trained->in_force().size(); ++i) {
    frozen.push_back(!loaded.agreed->trained->in_force()[i] &&
                     names.contains(loaded.agreed->trained->name(i)));
  }
  return frozen;
}

// FAILED_PRECONDITION if the model now computes something else than when it was saved.
absl::Status CheckModelFiles(const models::Model& model, const manifest::Manifest& manifest) {
  if (manifest.model_hash.empty() || manifest.model_hash == model.file_hash()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      model.name(), ": its files are others than those with which the checkpoint of step ",
      manifest.step, " was written (hash ", manifest.model_hash, ", found ", model.file_hash(),
      "); put the former folder back, or begin a new job with start.what: weights"));
}

// Prepares the session for a checkpoint with this manifest. Returns the state to fill.
absl::StatusOr<checkpoint::State> StateFor(Loaded& loaded, const manifest::Manifest& manifest) {
  RETURN_IF_ERROR(CheckModelFiles(*loaded.agreed->model, manifest));
  loaded.first_weights = manifest.first_weights;
  if (!loaded.tokenizer.known()) loaded.tokenizer = manifest.tokenizer;
  if (!loaded.trains()) return State(loaded);
  const int64_t world_size = loaded.opened().parts.control->world_size();
  if (!loaded.agreed->data.train->own_sizes.empty() && manifest.world_size != world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data.train.per_rank: the checkpoint was written by ", manifest.world_size,
        " ranks, and the job has ", world_size,
        ": with files of each rank's own the place in the data cannot be kept; start.what: "
        "weights+optimizer begins the data anew"));
  }
  const manifest::Steering& steering = manifest.steering;
  // The rules are restored even without a version, because another checkpoint may have been tried
  // before. The rules of another job count only if the job file has none.
  const bool steered =
      steering.trainability_version > 0 &&
      (IsOwn(manifest, loaded.opened().identity) || loaded.opened().job.model.trainable.empty());
  loaded.agreed->trained->Restore(steered ? steering.trainability_version : 1,
                                  steered ? steering.rules : loaded.opened().job.model.trainable);
  loaded.training->ExpectAverages(false);  // drops averages of an earlier attempt
  if (loaded.agreed->trained->first_change() >= 0) {
    RETURN_IF_ERROR(loaded.training->Refresh(manifest.step).status());
  }
  loaded.training->AddFrozenState(FrozenOf(loaded, WithState(loaded, manifest)));
  loaded.training->ExpectAverages(HasAverages(manifest));
  return State(loaded);
}

// Continues with the data. `own`: how this session takes samples. `world_size`: of the checkpoint.
void GoOnWithData(Loaded& loaded, const manifest::SamplingRecord& own, int64_t world_size) {
  SessionState& state = loaded.opened().state;
  Continuation continuation = Continue({state.step, state.position, state.sampling, world_size},
                                       {own, loaded.opened().parts.control->world_size(),
                                        loaded.opened().job.stages, state.validations.ended});
  state.sampling = std::move(continuation.sampling);
  state.position = continuation.position;
  state.validation_due = state.validation_due || continuation.pass_due;
  if (!loaded.opened().leader()) return;
  for (const auto& [reason, text] : continuation.told) {
    spdlog::warn("{}", text);
    loaded.opened().reports.Report(Notice{reason, text, state.step});
  }
}

void Restore(Loaded& loaded, const Checkpoints::Restored& restored) {
  const checkpoint::SavePoint& point = restored.point;
  const std::vector<manifest::SamplingRecord> own = loaded.opened().state.sampling;
  loaded.opened().state.ResumeFrom(point);
  if (loaded.trains()) GoOnWithData(loaded, own.back(), restored.world_size);
  loaded.agreed->trained->RestorePending(point.steering.pending);
  loaded.commands = {point.last_command, point.steering.waiting_commands};
}

// Opens the job's checkpoints and, if any exists, continues from the one that Restore chooses.
absl::Status OpenCheckpoints(Loaded& loaded) {
  const Job& job = loaded.opened().job;
  const SessionParts& parts = loaded.opened().parts;
  // A generation that starts from this checkpoint does not repeat the earlier steps. So their
  // metrics must have reached the coordinator.
  const auto still_mine = [events = parts.events, lease = parts.lease] {
    events->Settle(kSettle);
    return lease == nullptr ? absl::OkStatus() : lease->StillMine();
  };
  ASSIGN_OR_RETURN(loaded.checkpoints,
                   Checkpoints::Open(loaded.opened().identity, *job.checkpoint, parts.checkpoints,
                                     StrategyName(job.strategy), loaded.agreed->model->kind(),
                                     parts.files, parts.events, still_mine, loaded.opened().disk));
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(loaded.restored,
                   loaded.checkpoints->Restore([&loaded](const manifest::Manifest& manifest) {
                     return StateFor(loaded, manifest);
                   }));
  const Checkpoints::Restored& restored = loaded.restored;
  if (restored.path.empty()) return absl::OkStatus();
  if (loaded.opened().leader()) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    spdlog::info("{}: checked and loaded in {:.3f} s", restored.path, took.count());
  }
  Restore(loaded, restored);
  // The retry's decision is newer than the checkpoint's rate.
  if (restored.generation < parts.learning_rate_since && job.optimizer.has_value()) {
    loaded.opened().state.learning_rate = job.optimizer->lr;
  }
  loaded.started_from = restored.path;
  return absl::OkStatus();
}

// Tells the log and the coordinator that the averages start again, unless this checkpoint has
// averages. Leading rank only.
void TellOfAverages(Loaded& loaded, const Checkpoints::Restored& restored) {
  if (!loaded.opened().job.evaluation.averages.has_value() || !loaded.opened().leader()) return;
  if (loaded.training->averages()->begun()) return;
  const std::string text =
      absl::StrCat("ema: the averages begin as the parameters of ", restored.path,
                   loaded.opened().job.start->what == StartConfig::What::kWeights
                       ? ", of which only the weights are taken (start.what)"
                       : ", which has no averages");
  spdlog::info("{}", text);
  loaded.opened().reports.Report(Notice{"AVERAGES_BEGIN_ANEW", text, loaded.opened().state.step});
}

// Returns the state to fill from another job's checkpoint.
absl::StatusOr<checkpoint::State> StateFromOther(Loaded& loaded,
                                                 const manifest::Manifest& manifest) {
  const StartConfig::What what = loaded.opened().job.start->what;
  loaded.first_weights = manifest.first_weights;
  if (!loaded.tokenizer.known()) loaded.tokenizer = manifest.tokenizer;
  if (what != StartConfig::What::kWeights && loaded.trains()) {
    ASSIGN_OR_RETURN(const checkpoint::ModelRecords own, Records(loaded));
    RETURN_IF_ERROR(SameOptimizers(manifest, own));
  }
  if (what == StartConfig::What::kEverything && loaded.trains()) return StateFor(loaded, manifest);
  std::set<std::string> saved;  // the parameters whose state is taken
  if (what == StartConfig::What::kWeightsAndOptimizer && loaded.trains()) {
    saved = WithState(loaded, manifest);
    loaded.training->AddFrozenState(FrozenOf(loaded, saved));
    loaded.training->ExpectAverages(HasAverages(manifest));
  }
  return checkpoint::Only(State(loaded), [&saved](const checkpoint::StateItem& item) {
    if (checkpoint::IsOptimizers(item)) return saved.contains(item.parameter);
    return item.slot != "scaler";
  });
}

// Starts from another job's checkpoint, if the job names one.
absl::Status StartFromOther(Loaded& loaded) {
  if (!loaded.opened().job.start.has_value()) return absl::OkStatus();
  constexpr char kSetting[] = "start.checkpoint";
  loaded.opened().reports.Progress("loading another job's checkpoint");
  const auto restored = Checkpoints::RestoreFrom(
      loaded.opened().job.start->checkpoint, loaded.opened().identity, loaded.opened().parts.files,
      [&loaded](const manifest::Manifest& manifest) { return StateFromOther(loaded, manifest); });
  if (!restored.ok()) return Annotate(restored.status(), kSetting);
  if (loaded.opened().leader()) {
    spdlog::info("{}: {}, written after step {}", kSetting, restored->path, restored->point.step);
  }
  TellOfAverages(loaded, *restored);
  if (loaded.opened().job.start->what != StartConfig::What::kEverything || !loaded.trains())
    return absl::OkStatus();
  Restore(loaded, *restored);
  if (loaded.opened().parts.learning_rate_since > 0)
    loaded.opened().state.learning_rate = loaded.opened().job.optimizer->lr;
  loaded.started_from = restored->path;
  return absl::OkStatus();
}

// Fills the optimizer's state from a file, if the job names one.
absl::Status ImportOptimizerState(Loaded& loaded) {
  const std::string& path = loaded.opened().job.optimizer->state;
  if (path.empty()) return absl::OkStatus();
  loaded.opened().reports.Progress("loading the optimizer's state");
  constexpr char kSetting[] = "optimizer.state";
  ASSIGN_OR_RETURN(const checkpoint::ModelRecords records, Records(loaded));
  const auto source =
      optimizerfile::OptimizerSource::Open(path, records.optimizer, records.parameters);
  if (!source.ok()) return Annotate(source.status(), kSetting);
  checkpoint::ImportedSlots slots;
  for (size_t i = 0; i < loaded.training->slots().size(); ++i) {
    auto& own = slots[loaded.agreed->trained->name(i)];
    for (const optim::StateSlot& slot : loaded.training->slots()[i]) {
      own.push_back({slot.name, slot.scalar});
    }
  }
  RETURN_IF_ERROR(Annotate(checkpoint::CheckImport(*source, records.parameters, slots),
                           absl::StrCat(kSetting, ": ", path)));
  // With another file on its node, a rank would make other collectives than its peers.
  RETURN_IF_ERROR(AgreeOn("the optimizer's state", checkpoint::LinesOf(*source),
                          loaded.opened().parts.control));
  std::set<std::string> in_file;
  for (const auto& [name, values] : source->state()) in_file.insert(name);
  loaded.training->AddFrozenState(FrozenOf(loaded, in_file));
  checkpoint::FillImported(*source, slots, State(loaded));
  if (!loaded.opened().leader()) return absl::OkStatus();
  for (const std::string& difference : source->differences()) {
    spdlog::warn("{}: {}: {}", kSetting, path, difference);
    loaded.opened().reports.Report(Notice{"OPTIMIZER_STATE_DIFFERS",
                                          absl::StrCat(kSetting, ": ", path, ": ", difference),
                                          loaded.opened().state.step});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StartFrom(Loaded& loaded) {
  if (loaded.opened().job.checkpoint.has_value()) RETURN_IF_ERROR(OpenCheckpoints(loaded));
  if (loaded.started_from.empty()) RETURN_IF_ERROR(StartFromOther(loaded));
  if (loaded.started_from.empty() && loaded.trains()) {
    RETURN_IF_ERROR(ImportOptimizerState(loaded));
  }
  return absl::OkStatus();
}

}  // namespace muster::train
