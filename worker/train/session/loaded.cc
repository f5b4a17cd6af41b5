#include "worker/train/session/loaded.h"

#include <ATen/core/grad_mode.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/jobspec/jobspec.h"
#include "common/manifest/name.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/models/seed.h"
#include "worker/models/unit.h"
#include "worker/optim/schedule.h"
#include "worker/train/evaluate/evaluation_totals.h"
#include "worker/train/job/improvement.h"
#include "worker/train/ranks/guarded.h"
#include "worker/train/session/best_checkpoint.h"
#include "worker/train/session/loader.h"
#include "worker/train/start/continuation.h"
#include "worker/train/start/known_ends.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

// Why the job's model cannot train with a micro-batch of one sample, although it can with two
// samples, in its own words; empty if it can, or if that is not known. Makes a second model on the
// CPU, runs its forward in the mode of training on blank samples of the data set, and drops it.
std::string WhyNoSingleSample(const Job& job, const data::Dataset& dataset) {
  Job plain = job;
  plain.spec.mutable_model()->clear_weights();
  plain.spec.mutable_model()->clear_weights_from();
  const at::NoGradGuard no_grad;
  models::ForwardContext context(models::Mode::kTrain, models::MakeGenerator(job.seed, at::kCPU));
  std::unique_ptr<models::Model> model;
  const auto train_with = [&](int64_t samples) {
    return Guarded("a trial", [&]() -> absl::Status {
      model->Loss(dataset.Blank(samples), context);
      return absl::OkStatus();
    });
  };
  const absl::Status built = Guarded("a trial", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(model, BuildModel(plain));
    return absl::OkStatus();
  });
  if (!built.ok() || !train_with(2).ok()) return "";
  return Message(train_with(1));
}

}  // namespace

std::vector<PlannedStage> PlanOf(const Job& job, const SessionState& state) {
  return PlanStages(job.stages, TimelineOf(state.sampling), state.validations.ended);
}

absl::StatusOr<std::unique_ptr<Loaded>> Load(std::unique_ptr<Agreed> agreed) {
  auto loaded = std::make_unique<Loaded>();
  loaded->agreed = std::move(agreed);
  RETURN_IF_ERROR(Loader(loaded.get()).Load());
  return loaded;
}

absl::Status Loader::Load() {
  loaded_.tokenizer = agreed_.tokenizer;
  if (AnyFit(opened_.job.stages)) RETURN_IF_ERROR(MakeSampler());
  RETURN_IF_ERROR(CheckMetrics());
  RETURN_IF_ERROR(MakeTraining());
  RETURN_IF_ERROR(CheckWeights());
  agreed_.deferred = {};  // this also closes the weights file
  if (opened_.job.checkpoint.has_value()) RETURN_IF_ERROR(OpenCheckpoints());
  if (loaded_.started_from.empty()) RETURN_IF_ERROR(StartFromOther());
  if (loaded_.started_from.empty() && loaded_.trains()) RETURN_IF_ERROR(ImportOptimizerState());
  RETURN_IF_ERROR(PlanSteps());
  if (loaded_.checkpoints != nullptr) {
    RETURN_IF_ERROR(FindBest(*loaded_.checkpoints, opened_.parts, opened_.reports, &opened_.state));
  }
  RETURN_IF_ERROR(CheckKnownEnds());
  const int64_t step = opened_.state.step;
  ASSIGN_OR_RETURN(
      loaded_.requests,
      PreparePredictions(RemainingStages(loaded_.stages, step, opened_.parts.stages_done),
                         opened_.job, opened_.identity, *agreed_.model, step,
                         *opened_.parts.control));
  return absl::OkStatus();
}

absl::Status Loader::MakeSampler() {
  const Job& job = opened_.job;
  const RankData& data = *agreed_.data.train;
  auto sampler = data::Sampler::Create({.size = data.dataset->size(),
                                        .seed = job.seed,
                                        .world_size = opened_.parts.control->world_size(),
                                        .per_rank = job.batch.per_rank,
                                        .accumulate = job.batch.accumulate,
                                        .order = job.batch.order,
                                        .last = job.batch.last,
                                        .own = data.Own(opened_.identity.rank)});
  if (!sampler.ok()) return Annotate(sampler.status(), "batch");
  loaded_.sampler = std::make_unique<data::Sampler>(*std::move(sampler));
  opened_.state.sampling = {
      RecordOf(job, loaded_.sampler->pace(), /*per_rank=*/!data.own_sizes.empty())};
  return absl::OkStatus();
}

absl::Status Loader::MakeTraining() {
  Training::Parts parts{.job = &opened_.job,
                        .rank = opened_.identity.rank,
                        .model = agreed_.model.get(),
                        .trained = agreed_.trained.get(),
                        .communicators = opened_.communicators(),
                        .recorder = opened_.profile.recorder()};
  if (loaded_.trains()) {
    opened_.state.learning_rate = opened_.job.optimizer->lr;
    parts.control = opened_.parts.control;
    parts.dataset = agreed_.data.train->dataset.get();
    parts.sampler = loaded_.sampler.get();
    parts.finite = agreed_.finite.get();
  } else if (opened_.in_shards()) {
    TrainedParameters& trained = *agreed_.trained;
    trained.Want(Mask(trained.in_force().size(), false));  // no gradients
    trained.BringIntoForce();
  } else {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(loaded_.training,
                   Training::Create(parts, opened_.in_shards() ? &agreed_.deferred : nullptr));
  return absl::OkStatus();
}

absl::Status Loader::CheckWeights() const {
  if (!agreed_.weights.has_value() || !opened_.in_shards()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const auto results,
      checkpoint::Exchange(*opened_.parts.control, checkpoint::ToResult(agreed_.weights->status()),
                           "what the ranks read of the weights", 0));
  return Annotate(checkpoint::Combine(results), "model.weights");
}

absl::Status Loader::CheckMetrics() const {
  const Job& job = opened_.job;
  // Whether a model's own loss tells how many are right is known after the first pass only.
  const bool mse = job.model.loss.has_value() && job.model.loss->kind == models::LossKind::kMse;
  const GivenMetrics given{.accuracy = !mse,
                           .top_k_accuracy = !mse && CountsTopK(*agreed_.model),
                           .perplexity = agreed_.model->HasPerplexity()};
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const auto* fit = std::get_if<FitStage>(&job.stages[i]);
    if (fit == nullptr) continue;
    RETURN_IF_ERROR(train::CheckMetrics(fit->passes, given, static_cast<int64_t>(i)));
  }
  return absl::OkStatus();
}

absl::Status Loader::PlanSteps() {
  Job& job = opened_.job;
  loaded_.stages = PlanOf(job, opened_.state);
  loaded_.written_schedule = job.schedule;
  if (!CountsInEpochs(job.stages)) return absl::OkStatus();
  const int64_t total_steps = ScheduledSteps(loaded_.stages);
  optim::EndAt(total_steps, &job.schedule);
  // With other ranks a job that has begun may have fewer steps than it was checked for.
  if (!loaded_.restored.path.empty()) return absl::OkStatus();
  const v1::SpecProblems problems =
      jobspec::ValidateSteps(job.spec, static_cast<uint64_t>(total_steps));
  if (problems.problems_size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the stages have ", total_steps, " steps, ", loaded_.sampler->steps_per_epoch(),
        " in each epoch: ", jobspec::FormatProblems(problems)));
  }
  return absl::OkStatus();
}

absl::Status Loader::CheckKnownEnds() const {
  const Job& job = opened_.job;
  const SessionState& state = opened_.state;
  const std::string& from = loaded_.started_from;
  const Checkpoints* checkpoints = loaded_.checkpoints.get();
  const bool own =
      checkpoints != nullptr && from == checkpoints->PathOf(manifest::NameOfDirectory(from));
  if (!own) {
    if (!from.empty() && loaded_.trains()) {
      RETURN_IF_ERROR(CheckStepsAreLeft(loaded_.stages, state.step, from));
    }
    RETURN_IF_ERROR(
        CheckBest(job.weights_export, loaded_.stages, state.step, state.validation_due));
  }
  if (!loaded_.trains()) return absl::OkStatus();
  const RankData& data = *agreed_.data.train;
  const Division division{.size = data.dataset->size(),
                          .own_sizes = data.own_sizes,
                          .world_size = opened_.parts.control->world_size(),
                          .batch = job.batch};
  const auto single = FirstSingleSample(division, state.position);
  if (!single.has_value() || *single > TotalSteps(loaded_.stages) - state.step) {
    return absl::OkStatus();
  }
  const v1::ModelSpec& model = job.spec.model();
  if (NeedsTwoSamples(model)) {
    return SingleSampleError(
        "BatchNorm in the last stage of model.convnet, where an image is down to one pixel,",
        division, *single);
  }
  // With per_rank 1 the first step shows it, and a plug-in's own code need not run twice.
  const bool unknown = model.has_torchscript() || model.has_plugin();
  if (!unknown || job.batch.per_rank == 1) return absl::OkStatus();
  std::string why;
  if (opened_.leader()) why = WhyNoSingleSample(job, *data.dataset);
  ASSIGN_OR_RETURN(why, checkpoint::TellAll(*opened_.parts.files, why, "a trial with one sample"));
  if (why.empty()) return absl::OkStatus();
  return SingleSampleError(absl::StrCat(agreed_.model->name(), " (", why, ")"), division, *single);
}

}  // namespace muster::train
