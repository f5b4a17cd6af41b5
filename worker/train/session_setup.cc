// From nothing to a session that can run.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/jobspec/lines.h"
#include "common/status/status.h"
#include "worker/train/agreement.h"
#include "worker/train/session_impl.h"

namespace muster::train {
namespace {

// So long, at most, a checkpoint waits for the reports before it.
constexpr absl::Duration kSettle = absl::Seconds(1);

}  // namespace

absl::Status SessionImpl::Build() {
  Progress("loading");
  RETURN_IF_ERROR(AgreeOn("the job", jobspec::LinesOf(job_.spec), parts_.control));
  RETURN_IF_ERROR(PrepareExport());
  const bool trains = TotalSteps(job_.stages) > 0;
  ASSIGN_OR_RETURN(model_, BuildModel(job_, in_shards() ? &deferred_ : nullptr));
  RETURN_IF_ERROR(AgreeOn("the model", LinesOf(*model_), parts_.control));
  auto trainability = TrainabilityOf(*model_, job_.trainable);
  if (!trainability.ok()) return Annotate(trainability.status(), "trainable.rules");
  trainability_ = *std::move(trainability);
  SetFlags(model_->Parameters(), trainability_->mask());
  std::vector<std::string> names;
  parameters_ = model_->Parameters();
  for (const auto& parameter : parameters_) names.push_back(parameter.name);
  roll_call_.Configure(
      {.names = std::move(names),
       .uneven_inputs = job_.uneven_inputs,
       .full_micro_batches = parts_.control->world_size() * job_.batch.accumulate});
  finite_.emplace(*model_);
  if (job_.validate.has_value()) {
    ASSIGN_OR_RETURN(validate_data_, OpenRankData("data.validate", *job_.validate, model_->Input(),
                                                  emptiness(), *parts_.control));
  }
  if (trains) RETURN_IF_ERROR(OpenTrainData());
  RETURN_IF_ERROR(AgreeOnData());
  if (trains) {
    RETURN_IF_ERROR(BuildTraining());
  } else if (in_shards()) {
    RETURN_IF_ERROR(ApplyRules({{.freeze = true, .pattern = "*"}}, *model_));  // no gradients
    ASSIGN_OR_RETURN(training_, Training::Create({.job = &job_,
                                                  .rank = identity_.rank,
                                                  .model = model_.get(),
                                                  .communicator = parts_.gradients,
                                                  .recorder = profile_.recorder()},
                                                 &deferred_));
  }
  deferred_ = {};  // and the weights file with it
  PlanAnew();

  std::string started_from;
  if (job_.checkpoint.has_value()) {
    ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Open(identity_, *job_.checkpoint,
                                                     {.recorded = parts_.checkpoints,
                                                      .retired = parts_.retired_checkpoints,
                                                      .had_others = parts_.had_checkpoints,
                                                      .from_scratch = parts_.from_scratch,
                                                      .start_from = parts_.start_from},
                                                     StrategyName(job_.strategy), model_->kind(),
                                                     parts_.control, parts_.events));
    checkpoints_->SetStillMine([this] {
      // A checkpoint that a later generation goes on from stands for steps whose metrics were told.
      parts_.events->Settle(kSettle);
      return StillMine();
    });
    ASSIGN_OR_RETURN(const auto restored, checkpoints_->Restore([this](const auto& manifest) {
      return StateFor(manifest);
    }));
    if (!restored.path.empty()) Restore(restored);
    started_from = restored.path;
  }
  RETURN_IF_ERROR(CallNow().status());  // every rank is as far, and has the same plan
  const int64_t last_command = schedule_.position().taken;
  parts_.events->Report(SessionStarted{step_, started_from, last_command});
  TellUnreported();
  if (this->trains()) ReportTrainability(std::nullopt);
  return absl::OkStatus();
}

absl::Status SessionImpl::AgreeOnData() {
  std::vector<jobspec::Line> sizes;
  const auto add = [&sizes](const std::string& name, const std::optional<RankData>& data) {
    // The sizes of the ranks' own files all ranks have from each other.
    if (!data.has_value() || !data->own_sizes.empty()) return;
    sizes.push_back({name, absl::StrCat(data->dataset->size(), " samples")});
  };
  add("data.train", train_data_);
  add("data.validate", validate_data_);
  return AgreeOn("the data", sizes, parts_.control);
}

void SessionImpl::Restore(const Checkpoints::Restored& restored) {
  const checkpoint::SavePoint& point = restored.point;
  step_ = point.step;
  position_ = {point.epoch, point.cursor};
  saved_ = CheckpointWritten{point.step, restored.path, restored.generation};
  if (!point.steering.pending.empty()) {
    const std::set<std::string> pending(point.steering.pending.begin(),
                                        point.steering.pending.end());
    pending_ = training_->mask();
    for (size_t i = 0; i < pending_->size(); ++i) {
      if (pending.contains(parameters_[i].name)) (*pending_)[i] = !(*pending_)[i];
    }
  }
  schedule_ = CommandSchedule({point.last_command, point.steering.waiting_commands});
  applied_.assign(point.steering.applied.begin(), point.steering.applied.end());
  validation_due_ = point.steering.validation_due;
  learning_rate_ = point.steering.learning_rate.value_or(learning_rate_);
}

absl::Status SessionImpl::OpenTrainData() {
  if (model_->RunsCollectives() && job_.batch.last == data::Last::kUneven) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.last: found uneven, but the model ", model_->kind(),
                     " runs collectives of its own, which a rank without input would not answer; "
                     "allowed: drop, pad"));
  }
  ASSIGN_OR_RETURN(train_data_, OpenRankData("data.train", *job_.train, model_->Input(),
                                             emptiness(), *parts_.control));
  return absl::OkStatus();
}

absl::Status SessionImpl::BuildTraining() {
  auto sampler = data::Sampler::Create({.size = train_data_->dataset->size(),
                                        .seed = job_.seed,
                                        .world_size = parts_.control->world_size(),
                                        .per_rank = job_.batch.per_rank,
                                        .accumulate = job_.batch.accumulate,
                                        .order = job_.batch.order,
                                        .last = job_.batch.last,
                                        .own = train_data_->Own(identity_.rank)});
  if (!sampler.ok()) return Annotate(sampler.status(), "batch");
  sampler_.emplace(*std::move(sampler));
  learning_rate_ = job_.optimizer->lr;
  ASSIGN_OR_RETURN(training_, Training::Create({.job = &job_,
                                                .rank = identity_.rank,
                                                .model = model_.get(),
                                                .communicator = parts_.gradients,
                                                .control = parts_.control,
                                                .dataset = train_data_->dataset.get(),
                                                .sampler = &*sampler_,
                                                .finite = &*finite_,
                                                .recorder = profile_.recorder()},
                                               in_shards() ? &deferred_ : nullptr));
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::State> SessionImpl::StateFor(const manifest::Manifest& manifest) {
  if (!trains()) return state_;
  const manifest::Steering& steering = manifest.steering;
  // Rules that fit nothing are another model's: the state will not fit either, and tells more.
  if (steering.trainability_version > 0) {
    trainability_->Restore(steering.trainability_version, steering.rules).IgnoreError();
  }
  if (trainability_->mask() != training_->mask()) {
    state_ = {};
    RETURN_IF_ERROR(training_->Refresh(trainability_->mask(), manifest.step).status());
  }
  std::set<std::string> slots;
  for (const optim::StateSlot& slot : training_->slots()) slots.insert(slot.name);
  std::set<std::string> saved;  // parameters that have state there
  for (const manifest::Piece& piece : manifest.pieces) {
    if (slots.contains(piece.slot)) saved.insert(piece.parameter);
  }
  std::vector<bool> parked;
  for (size_t i = 0; i < training_->mask().size(); ++i) {
    parked.push_back(!training_->mask()[i] && saved.contains(trainability_->parameters()[i].name));
  }
  training_->Park(parked);
  PlanAnew();
  return state_;
}

}  // namespace muster::train
