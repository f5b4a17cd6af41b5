#include "worker/train/session/loaded.h"

#include <ATen/core/grad_mode.h>

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
#include "worker/train/evaluate/evaluation_totals.h"
#include "worker/train/job/improvement.h"
#include "worker/train/job/model_files.h"
#include "worker/train/ranks/guarded.h"
#include "worker/train/session/best_checkpoint.h"
#include "worker/train/start/continuation.h"
#include "worker/train/start/known_ends.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

// Returns why the job's model cannot train with a micro-batch of one sample, although two samples
// work. The text is the model's error; empty if one sample works or the answer is not known. Makes
// a second model on the CPU and runs its forward in training mode on blank samples of the data set.
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

absl::Status MakeSampler(Loaded& loaded) {
  const Job& job = loaded.opened().job;
  const RankData& data = *loaded.agreed->data.train;
  auto sampler = data::Sampler::Create({.size = data.dataset->size(),
                                        .seed = job.seed,
                                        .world_size = loaded.opened().parts.control->world_size(),
                                        .per_rank = job.batch.per_rank,
                                        .accumulate = job.batch.accumulate,
                                        .order = job.batch.order,
                                        .last = job.batch.last,
                                        .own = data.Own(loaded.opened().identity.rank)});
  if (!sampler.ok()) return Annotate(sampler.status(), "batch");
  loaded.sampler = std::make_unique<data::Sampler>(*std::move(sampler));
  loaded.opened().state.sampling = {
      RecordOf(job, loaded.sampler->pace(), /*per_rank=*/!data.own_sizes.empty())};
  return absl::OkStatus();
}

absl::Status MakeTraining(Loaded& loaded) {
  Training::Dependencies parts{.job = &loaded.opened().job,
                               .rank = loaded.opened().identity.rank,
                               .model = loaded.agreed->model.get(),
                               .trained = loaded.agreed->trained.get(),
                               .communicators = loaded.opened().communicators(),
                               .recorder = loaded.opened().profile.recorder()};
  if (loaded.trains()) {
    loaded.opened().state.learning_rate = loaded.opened().job.optimizer->lr;
    parts.control = loaded.opened().parts.control;
    parts.dataset = loaded.agreed->data.train->dataset.get();
    parts.sampler = loaded.sampler.get();
    parts.finite = loaded.agreed->finite.get();
  } else if (loaded.opened().in_shards()) {
    TrainedParameters& trained = *loaded.agreed->trained;
    trained.Want(Mask(trained.in_force().size(), false));  // no gradients
    trained.BringIntoForce();
  } else {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      loaded.training,
      Training::Create(parts, loaded.opened().in_shards() ? &loaded.agreed->deferred : nullptr));
  return absl::OkStatus();
}

// Ends the session on all ranks if some rank has read wrong values of the weights file. With fsdp
// each rank reads only the values of its own slices.
absl::Status CheckWeights(Loaded& loaded) {
  if (!loaded.agreed->weights.has_value() || !loaded.opened().in_shards()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto results,
                   checkpoint::Exchange(*loaded.opened().parts.control,
                                        checkpoint::ToResult(loaded.agreed->weights->status()),
                                        "what the ranks read of the weights", 0));
  return Annotate(checkpoint::Combine(results), WeightsField(loaded.opened().job.spec.model()));
}

// INVALID_ARGUMENT: a stage needs a metric that the model does not give.
absl::Status CheckMetrics(Loaded& loaded) {
  const Job& job = loaded.opened().job;
  // Only the first pass shows whether the loss of a plug-in counts the correct targets.
  const bool mse = job.model.loss.has_value() && job.model.loss->kind == models::LossKind::kMse;
  const models::Model& model = *loaded.agreed->model;
  GivenMetrics given = {Metric::kLoss};
  if (!mse && !model.Input().own_loss) given.insert(Metric::kAccuracy);
  if (!mse && CountsTopK(model)) given.insert(Metric::kTopKAccuracy);
  if (model.HasPerplexity()) given.insert(Metric::kPerplexity);
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const auto* fit = std::get_if<FitStage>(&job.stages[i]);
    if (fit == nullptr) continue;
    RETURN_IF_ERROR(train::CheckMetrics(fit->passes, given, static_cast<int64_t>(i)));
  }
  return absl::OkStatus();
}

// Plans the stages in steps. The number of steps of a stage by epochs depends on the data.
// INVALID_ARGUMENT: the job is not valid with this number of steps. A session that continues from a
// checkpoint of its own job is not checked.
absl::Status PlanSteps(Loaded& loaded) {
  Job& job = loaded.opened().job;
  loaded.stages = PlanOf(job, loaded.opened().state);
  loaded.written_schedule = job.schedule;
  if (!CountsInEpochs(job.stages)) return absl::OkStatus();
  const int64_t total_steps = ScheduledSteps(loaded.stages);
  optim::EndAt(total_steps, &job.schedule);
  // With other ranks, a job that has begun may have fewer steps than at its check.
  if (!loaded.restored.path.empty()) return absl::OkStatus();
  const v1::SpecProblems problems =
      jobspec::ValidateSteps(job.spec, static_cast<uint64_t>(total_steps));
  if (problems.problems_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the stages have ", total_steps, " steps, ", loaded.sampler->steps_per_epoch(),
                     " in each epoch: ", jobspec::FormatProblems(problems)));
  }
  return absl::OkStatus();
}

absl::Status CheckKnownEnds(Loaded& loaded) {
  const Job& job = loaded.opened().job;
  const SessionState& state = loaded.opened().state;
  const std::string& from = loaded.started_from;
  const Checkpoints* checkpoints = loaded.checkpoints.get();
  const bool own =
      checkpoints != nullptr && from == checkpoints->PathOf(manifest::NameOfDirectory(from));
  if (!own) {
    if (!from.empty() && loaded.trains()) {
      RETURN_IF_ERROR(CheckStepsAreLeft(loaded.stages, state.step, from));
    }
    RETURN_IF_ERROR(CheckBest(job.weights_export, loaded.stages, state.step, state.validation_due));
  }
  if (!loaded.trains()) return absl::OkStatus();
  const RankData& data = *loaded.agreed->data.train;
  const Division division{.size = data.dataset->size(),
                          .own_sizes = data.own_sizes,
                          .world_size = loaded.opened().parts.control->world_size(),
                          .batch = job.batch};
  const auto single = FirstSingleSample(division, state.position);
  if (!single.has_value() || *single > TotalSteps(loaded.stages) - state.step) {
    return absl::OkStatus();
  }
  const v1::ModelSpec& model = job.spec.model();
  if (NeedsTwoSamples(model)) {
    return SingleSampleError(
        "BatchNorm in the last stage of model.convnet, where an image is down to one pixel,",
        division, *single);
  }
  // With per_rank 1, the first step shows the error, and the code of a plug-in need not run twice.
  const bool unknown = model.has_torchscript() || model.has_exported() || model.has_plugin();
  if (!unknown || job.batch.per_rank == 1) return absl::OkStatus();
  std::string why;
  if (loaded.opened().leader()) why = WhyNoSingleSample(job, *data.dataset);
  ASSIGN_OR_RETURN(
      why, checkpoint::TellAll(*loaded.opened().parts.files, why, "a trial with one sample"));
  if (why.empty()) return absl::OkStatus();
  return SingleSampleError(absl::StrCat(loaded.agreed->model->name(), " (", why, ")"), division,
                           *single);
}

// Fills `loaded`, which has the result of the agreement. A collective.
absl::Status Fill(Loaded& loaded) {
  loaded.tokenizer = loaded.agreed->tokenizer;
  if (AnyFit(loaded.opened().job.stages)) RETURN_IF_ERROR(MakeSampler(loaded));
  RETURN_IF_ERROR(CheckMetrics(loaded));
  RETURN_IF_ERROR(MakeTraining(loaded));
  RETURN_IF_ERROR(CheckWeights(loaded));
  loaded.agreed->deferred = {};  // closes the weights file, too
  RETURN_IF_ERROR(StartFrom(loaded));
  RETURN_IF_ERROR(PlanSteps(loaded));
  if (loaded.checkpoints != nullptr) {
    RETURN_IF_ERROR(FindBest(*loaded.checkpoints, loaded.opened().parts, loaded.opened().reports,
                             &loaded.opened().state));
  }
  RETURN_IF_ERROR(CheckKnownEnds(loaded));
  const int64_t step = loaded.opened().state.step;
  ASSIGN_OR_RETURN(
      loaded.requests,
      PreparePredictions(RemainingStages(loaded.stages, step, loaded.opened().parts.stages_done),
                         loaded.opened().job, loaded.opened().identity, *loaded.agreed->model, step,
                         *loaded.opened().parts.control));
  return absl::OkStatus();
}

}  // namespace

std::vector<PlannedStage> PlanOf(const Job& job, const SessionState& state) {
  return PlanStages(job.stages, TimelineOf(state.sampling), state.validations.ended);
}

absl::StatusOr<std::unique_ptr<Loaded>> Load(std::unique_ptr<Agreed> agreed) {
  auto loaded = std::make_unique<Loaded>();
  loaded->agreed = std::move(agreed);
  RETURN_IF_ERROR(Fill(*loaded));
  return loaded;
}

}  // namespace muster::train
