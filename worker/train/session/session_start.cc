// What a session starts from: a checkpoint of its job, another job's checkpoint, or a file with the
// optimizer's state.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/manifest/name.h"
#include "common/optimizerfile/optimizer_source.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/imported_state.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/session/session_impl.h"
#include "worker/train/start/continuation.h"
#include "worker/train/start/known_ends.h"
#include "worker/train/training/model_records.h"
#include "worker/train/training/single_sample.h"

namespace muster::train {
namespace {

bool HasAverages(const manifest::Manifest& manifest) {
  return std::any_of(
      manifest.pieces.begin(), manifest.pieces.end(),
      [](const manifest::Piece& piece) { return piece.slot == checkpoint::kAverageSlot; });
}

}  // namespace

void SessionImpl::Restore(const Checkpoints::Restored& restored) {
  const checkpoint::SavePoint& point = restored.point;
  const std::vector<manifest::SamplingRecord> own = session_state_.sampling;
  session_state_.ResumeFrom(point);
  if (trains()) GoOnWithData(own.back(), restored.world_size);
  trained_->RestorePending(point.steering.pending);
  schedule_ = CommandSchedule({point.last_command, point.steering.waiting_commands});
}

void SessionImpl::GoOnWithData(const manifest::SamplingRecord& own, int64_t world_size) {
  SessionState& state = session_state_;
  Continuation continuation =
      Continue({state.step, state.position, state.sampling, world_size},
               {own, parts_.control->world_size(), job_.stages, state.validations.ended});
  state.sampling = std::move(continuation.sampling);
  state.position = continuation.position;
  state.validation_due = state.validation_due || continuation.pass_due;
  if (!reports_.leader()) return;
  for (const auto& [reason, text] : continuation.told) {
    spdlog::warn("{}", text);
    reports_.Report(Notice{reason, text, state.step});
  }
}

absl::StatusOr<std::string> SessionImpl::StartFromOther() {
  if (!job_.start.has_value()) return std::string();
  constexpr char kSetting[] = "start.checkpoint";
  reports_.Progress("loading another job's checkpoint");
  const auto restored = Checkpoints::RestoreFrom(
      job_.start->checkpoint, identity_, parts_.files,
      [this](const manifest::Manifest& manifest) { return StateFromOther(manifest); });
  if (!restored.ok()) return Annotate(restored.status(), kSetting);
  if (reports_.leader()) {
    spdlog::info("{}: {}, written after step {}", kSetting, restored->path, restored->point.step);
  }
  TellOfAverages(*restored);
  if (job_.start->what != StartConfig::What::kEverything || !trains()) return std::string();
  Restore(*restored);
  if (parts_.learning_rate_since > 0) session_state_.learning_rate = job_.optimizer->lr;
  return restored->path;
}

absl::StatusOr<checkpoint::State> SessionImpl::StateFromOther(const manifest::Manifest& manifest) {
  const StartConfig::What what = job_.start->what;
  first_weights_ = manifest.first_weights;
  if (!tokenizer_.known()) tokenizer_ = manifest.tokenizer;
  if (what != StartConfig::What::kWeights && trains()) {
    ASSIGN_OR_RETURN(const checkpoint::ModelRecords own, Records(State()));
    RETURN_IF_ERROR(SameOptimizers(manifest, own));
  }
  if (what == StartConfig::What::kEverything && trains()) return StateFor(manifest);
  std::set<std::string> saved;  // parameters whose state is taken
  if (what == StartConfig::What::kWeightsAndOptimizer && trains()) {
    saved = WithState(manifest);
    training_->AddFrozenState(FrozenOf(saved));
    training_->ExpectAverages(HasAverages(manifest));
  }
  return checkpoint::Only(State(), [&saved](const checkpoint::StateItem& item) {
    if (checkpoint::IsOptimizers(item)) return saved.contains(item.parameter);
    return item.slot != "scaler";
  });
}

void SessionImpl::TellOfAverages(const Checkpoints::Restored& restored) const {
  if (!job_.averages.has_value() || !reports_.leader()) return;
  if (training_->averages()->begun()) return;
  const std::string text =
      absl::StrCat("ema: the averages begin as the parameters of ", restored.path,
                   job_.start->what == StartConfig::What::kWeights
                       ? ", of which only the weights are taken (start.what)"
                       : ", which has no averages");
  spdlog::info("{}", text);
  reports_.Report(Notice{"AVERAGES_BEGIN_ANEW", text, session_state_.step});
}

std::set<std::string> SessionImpl::WithState(const manifest::Manifest& manifest) const {
  std::set<std::string> saved;
  for (const manifest::ParameterRecord& parameter : manifest.parameters) {
    if (parameter.ever_trained) saved.insert(parameter.name);
  }
  if (!manifest.parameters.empty()) return saved;
  std::set<std::string> slots;
  for (const auto& own : training_->slots()) {
    for (const optim::StateSlot& slot : own) slots.insert(slot.name);
  }
  for (const manifest::Piece& piece : manifest.pieces) {
    if (slots.contains(piece.slot)) saved.insert(piece.parameter);
  }
  return saved;
}

Mask SessionImpl::FrozenOf(const std::set<std::string>& names) const {
  Mask frozen;
  for (size_t i = 0; i < trained_->in_force().size(); ++i) {
    frozen.push_back(!trained_->in_force()[i] && names.contains(trained_->name(i)));
  }
  return frozen;
}

absl::StatusOr<checkpoint::State> SessionImpl::StateFor(const manifest::Manifest& manifest) {
  first_weights_ = manifest.first_weights;
  if (!tokenizer_.known()) tokenizer_ = manifest.tokenizer;
  if (!trains()) return State();
  const int64_t world_size = parts_.control->world_size();
  if (!train_data_->own_sizes.empty() && manifest.world_size != world_size) {
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
                       (IsOwn(manifest, identity_) || job_.trainable.empty());
  trained_->Restore(steered ? steering.trainability_version : 1,
                    steered ? steering.rules : job_.trainable);
  training_->ExpectAverages(false);  // of another checkpoint that was tried before
  if (trained_->first_change() >= 0) {
    RETURN_IF_ERROR(training_->Refresh(manifest.step).status());
    roll_call_.SetLayout(std::bit_cast<int64_t>(strategy()->layout_fingerprint()));
  }
  training_->AddFrozenState(FrozenOf(WithState(manifest)));
  training_->ExpectAverages(HasAverages(manifest));
  return State();
}

absl::Status SessionImpl::CheckKnownEnds(const std::string& started_from) const {
  const std::string name = manifest::NameOfDirectory(started_from);
  const bool own = has_checkpoints() && started_from == checkpoints_->PathOf(name);
  if (!own) {
    if (!started_from.empty() && trains()) {
      RETURN_IF_ERROR(CheckStepsAreLeft(stages_, session_state_.step, started_from));
    }
    RETURN_IF_ERROR(CheckBest(job_.weights_export, stages_, session_state_.step,
                              session_state_.validation_due));
  }
  if (!trains()) return absl::OkStatus();
  const Division division{.size = train_data_->dataset->size(),
                          .own_sizes = train_data_->own_sizes,
                          .world_size = parts_.control->world_size(),
                          .batch = job_.batch,
                          .stop_at_first = job_.uneven_inputs.stop_at_first};
  const auto single = FirstSingleSample(division, session_state_.position);
  if (!single.has_value() || *single > TotalSteps(stages_) - session_state_.step) {
    return absl::OkStatus();
  }
  const v1::ModelSpec& model = job_.spec.model();
  if (NeedsTwoSamples(model)) {
    return SingleSampleError(
        "BatchNorm in the last stage of model.convnet, where an image is down to one pixel,",
        division, *single);
  }
  // With per_rank 1 the first step shows it, and a plug-in's own code need not run twice.
  const bool unknown = model.has_torchscript() || model.has_plugin();
  if (!unknown || job_.batch.per_rank == 1) return absl::OkStatus();
  std::string why;
  if (reports_.leader()) why = WhyNoSingleSample(job_, *train_data_->dataset);
  ASSIGN_OR_RETURN(why, checkpoint::TellAll(*parts_.files, why, "a trial with one sample"));
  if (why.empty()) return absl::OkStatus();
  return SingleSampleError(absl::StrCat(model_->name(), " (", why, ")"), division, *single);
}

absl::Status SessionImpl::ImportOptimizerState() {
  const std::string& path = job_.optimizer->state;
  if (path.empty()) return absl::OkStatus();
  reports_.Progress("loading the optimizer's state");
  constexpr char kSetting[] = "optimizer.state";
  ASSIGN_OR_RETURN(const checkpoint::ModelRecords records, Records(State()));
  const auto source =
      optimizerfile::OptimizerSource::Open(path, records.optimizer, records.parameters);
  if (!source.ok()) return Annotate(source.status(), kSetting);
  checkpoint::ImportedSlots slots;
  for (size_t i = 0; i < training_->slots().size(); ++i) {
    auto& own = slots[trained_->name(i)];
    for (const optim::StateSlot& slot : training_->slots()[i]) {
      own.push_back({slot.name, slot.scalar});
    }
  }
  RETURN_IF_ERROR(Annotate(checkpoint::CheckImport(*source, records.parameters, slots),
                           absl::StrCat(kSetting, ": ", path)));
  // A file that is another one on some node would give this rank other collectives than its peers.
  RETURN_IF_ERROR(AgreeOn("the optimizer's state", checkpoint::LinesOf(*source), parts_.control));
  std::set<std::string> in_file;
  for (const auto& [name, values] : source->state()) in_file.insert(name);
  training_->AddFrozenState(FrozenOf(in_file));
  checkpoint::FillImported(*source, slots, State());
  if (!reports_.leader()) return absl::OkStatus();
  for (const std::string& difference : source->differences()) {
    spdlog::warn("{}: {}: {}", kSetting, path, difference);
    reports_.Report(Notice{"OPTIMIZER_STATE_DIFFERS",
                           absl::StrCat(kSetting, ": ", path, ": ", difference),
                           session_state_.step});
  }
  return absl::OkStatus();
}

}  // namespace muster::train
