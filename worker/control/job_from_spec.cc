#include "worker/control/job_from_spec.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/jobspec.h"
#include "common/protoenum/cases.h"
#include "common/status/status.h"
#include "common/trainability/from_proto.h"
#include "worker/control/model_communicator.h"
#include "worker/control/stage_from_spec.h"

namespace muster::control {
namespace {

absl::Status Missing(const char* path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": no known alternative is set"));
}

std::vector<std::string> Strings(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

std::optional<data::TokenType> TypeOf(v1::TokenData::Dtype dtype) {
  if (dtype == v1::TokenData::DTYPE_UNSPECIFIED) return std::nullopt;
  return dtype == v1::TokenData::UINT32 ? data::TokenType::kUint32 : data::TokenType::kUint16;
}

std::vector<train::MixturePart> Mixture(
    const google::protobuf::RepeatedPtrField<v1::MixturePart>& spec) {
  std::vector<train::MixturePart> parts;
  for (const v1::MixturePart& part : spec) parts.push_back({Strings(part.path()), part.weight()});
  return parts;
}

absl::StatusOr<train::DataConfig> Data(const char* path, const v1::DataSet& spec) {
  const bool per_rank = !spec.per_rank().empty();
  switch (spec.kind_case()) {
    case v1::DataSet::kTokens:
      return train::TokenFiles{.paths = Strings(per_rank ? spec.per_rank() : spec.tokens().path()),
                               .type = TypeOf(spec.tokens().dtype()),
                               .per_rank = per_rank,
                               .mixture = Mixture(spec.tokens().mixture())};
    case v1::DataSet::kDocuments:
      return train::DocumentFiles{.paths = Strings(spec.documents().path()),
                                  .packed = spec.documents().packing() == v1::DocumentData::NONE
                                                ? data::Packed::kEach
                                                : data::Packed::kBestFit,
                                  .mixture = Mixture(spec.documents().mixture())};
    case v1::DataSet::kSafetensors:
      return train::RowFiles{
          .paths = Strings(per_rank ? spec.per_rank() : spec.safetensors().path()),
          .per_rank = per_rank,
          .names = {Strings(spec.safetensors().inputs()), spec.safetensors().targets()}};
    case v1::DataSet::kIdx:
      return data::IdxOptions{.images = Strings(spec.idx().images()),
                              .labels = Strings(spec.idx().labels()),
                              .mean = spec.idx().mean(),
                              .std = spec.idx().std()};
    case v1::DataSet::kNpy: {
      data::NpyOptions files{.inputs = Strings(spec.npy().inputs()),
                             .labels = Strings(spec.npy().labels())};
      for (const v1::NpyArray& one : spec.npy().arrays()) {
        files.arrays.push_back({one.name(), Strings(one.path())});
      }
      return files;
    }
    case v1::DataSet::KIND_NOT_SET:
      break;
  }
  return Missing(path);
}

std::optional<models::LossOptions> Loss(const v1::LossSpec& spec) {
  switch (spec.kind_case()) {
    case v1::LossSpec::kCrossEntropy: {
      models::LossOptions loss{.kind = models::LossKind::kCrossEntropy,
                               .label_smoothing = spec.cross_entropy().label_smoothing()};
      if (spec.cross_entropy().has_ignore_index()) {
        loss.ignore_index = spec.cross_entropy().ignore_index();
      }
      return loss;
    }
    case v1::LossSpec::kMse:
      return models::LossOptions{.kind = models::LossKind::kMse};
    case v1::LossSpec::KIND_NOT_SET:
      break;
  }
  return std::nullopt;
}

// Returns the optimizer that a message with the oneof of all optimizers chooses.
template <typename Spec>
absl::StatusOr<optim::GroupOptimizer> Chosen(const char* path, const Spec& spec) {
  switch (spec.kind_case()) {
    case Spec::kAdamw:
      return optim::GroupOptimizer{
          spec.adamw().lr(), optim::AdamWOptions{.beta1 = spec.adamw().betas(0),
                                                 .beta2 = spec.adamw().betas(1),
                                                 .eps = spec.adamw().eps(),
                                                 .weight_decay = spec.adamw().weight_decay()}};
    case Spec::kSgd:
      return optim::GroupOptimizer{spec.sgd().lr(),
                                   optim::SgdOptions{.momentum = spec.sgd().momentum(),
                                                     .weight_decay = spec.sgd().weight_decay(),
                                                     .nesterov = spec.sgd().nesterov()}};
    case Spec::kLion:
      return optim::GroupOptimizer{spec.lion().lr(),
                                   optim::LionOptions{.beta1 = spec.lion().betas(0),
                                                      .beta2 = spec.lion().betas(1),
                                                      .weight_decay = spec.lion().weight_decay()}};
    case Spec::kAdam:
      return optim::GroupOptimizer{spec.adam().lr(),
                                   optim::AdamOptions{.beta1 = spec.adam().betas(0),
                                                      .beta2 = spec.adam().betas(1),
                                                      .eps = spec.adam().eps(),
                                                      .weight_decay = spec.adam().weight_decay()}};
    case Spec::kAdadelta:
      return optim::GroupOptimizer{
          spec.adadelta().lr(),
          optim::AdadeltaOptions{.rho = spec.adadelta().rho(),
                                 .eps = spec.adadelta().eps(),
                                 .weight_decay = spec.adadelta().weight_decay()}};
    case Spec::KIND_NOT_SET:
      break;
  }
  return Missing(path);
}

absl::StatusOr<optim::ParameterGroup> Group(const v1::ParameterGroup& spec) {
  optim::ParameterGroup group{.match = spec.match()};
  if (spec.has_weight_decay()) group.weight_decay = spec.weight_decay();
  if (spec.has_lr_scale()) group.lr_scale = spec.lr_scale();
  if (spec.has_lr()) group.lr = spec.lr();
  if (spec.betas_size() == 2) group.betas = {spec.betas(0), spec.betas(1)};
  if (spec.has_eps()) group.eps = spec.eps();
  if (spec.has_momentum()) group.momentum = spec.momentum();
  if (spec.has_optimizer()) {
    ASSIGN_OR_RETURN(group.optimizer, Chosen("optimizer.groups: optimizer", spec.optimizer()));
  }
  return group;
}

absl::StatusOr<train::OptimizerConfig> Optimizer(const v1::OptimizerSpec& spec) {
  ASSIGN_OR_RETURN(const optim::GroupOptimizer chosen, Chosen("optimizer", spec));
  train::OptimizerConfig optimizer{
      .lr = chosen.lr, .kind = chosen.options, .groups = {}, .state = spec.state()};
  for (const v1::ParameterGroup& of_spec : spec.groups()) {
    ASSIGN_OR_RETURN(optim::ParameterGroup group, Group(of_spec));
    optimizer.groups.push_back(std::move(group));
  }
  return optimizer;
}

optim::Schedule OneCycle(const v1::OneCycleSchedule& cycle) {
  return optim::OneCycle{.total_steps = cycle.total_steps(),
                         .pct_start = cycle.pct_start(),
                         .div_factor = cycle.div_factor(),
                         .final_div_factor = cycle.final_div_factor(),
                         .anneal = cycle.anneal() == v1::OneCycleSchedule::LINEAR
                                       ? optim::OneCycle::Anneal::kLinear
                                       : optim::OneCycle::Anneal::kCosine,
                         .three_phase = cycle.three_phase()};
}

optim::Schedule Schedule(const v1::ScheduleSpec& spec) {
  switch (spec.kind_case()) {
    case v1::ScheduleSpec::kWarmupCosine:
      return optim::WarmupCosine{.warmup_steps = spec.warmup_cosine().warmup_steps(),
                                 .total_steps = spec.warmup_cosine().total_steps(),
                                 .min_ratio = spec.warmup_cosine().min_ratio()};
    case v1::ScheduleSpec::kLinear:
      return optim::Linear{.warmup_steps = spec.linear().warmup_steps(),
                           .total_steps = spec.linear().total_steps(),
                           .min_ratio = spec.linear().min_ratio()};
    case v1::ScheduleSpec::kStep:
      return optim::StepDecay{.warmup_steps = spec.step().warmup_steps(),
                              .step_size = spec.step().step_size(),
                              .gamma = spec.step().gamma()};
    case v1::ScheduleSpec::kOneCycle:
      return OneCycle(spec.one_cycle());
    case v1::ScheduleSpec::kConstant:
    case v1::ScheduleSpec::KIND_NOT_SET:
      break;
  }
  return optim::Constant{.warmup_steps = spec.constant().warmup_steps()};
}

// Returns the bytes for any size above 0: at least 1, and at most 2^50.
int64_t BucketBytes(double bucket_mb) {
  return static_cast<int64_t>(std::clamp(bucket_mb * (1 << 20), 1.0, 0x1p50));
}

parallel::ReduceEvery ReduceEvery(v1::ShardedDdpSpec::ReduceEvery every) {
  return every == v1::ShardedDdpSpec::MICRO_BATCH ? parallel::ReduceEvery::kMicroBatch
                                                  : parallel::ReduceEvery::kStep;
}

absl::StatusOr<train::StrategyConfig> Strategy(const v1::StrategySpec& spec) {
  switch (spec.kind_case()) {
    case v1::StrategySpec::kDdp:
      return parallel::DdpOptions{.bucket_bytes = BucketBytes(spec.ddp().bucket_mb())};
    case v1::StrategySpec::kShardedDdp:
      return parallel::ShardedDdpOptions{
          .bucket_bytes = BucketBytes(spec.sharded_ddp().bucket_mb()),
          .reduce_every = ReduceEvery(spec.sharded_ddp().reduce_every()),
          .reduce_in_bfloat16 = spec.sharded_ddp().reduce_dtype() == v1::ShardedDdpSpec::BFLOAT16};
    case v1::StrategySpec::kFsdp: {
      const v1::FsdpSpec& fsdp = spec.fsdp();
      return parallel::FsdpOptions{
          .units = {fsdp.unit().begin(), fsdp.unit().end()},
          .replicate = {fsdp.replicate().begin(), fsdp.replicate().end()},
          .reshard_after_forward = fsdp.reshard_after_forward(),
          .frozen_resident = fsdp.frozen() == v1::FsdpSpec::RESIDENT,
          .reduce_every = ReduceEvery(fsdp.reduce_every()),
          .reduce_in_bfloat16 = fsdp.reduce_dtype() == v1::ShardedDdpSpec::BFLOAT16,
          .parameters_in_bfloat16 = fsdp.param_dtype() == v1::FsdpSpec::BFLOAT16};
    }
    case v1::StrategySpec::KIND_NOT_SET:
      break;
  }
  return Missing("strategy");
}

train::Precision PrecisionOf(v1::JobSpec::Precision precision) {
  switch (precision) {
    case v1::JobSpec::BFLOAT16:
      return train::Precision::kBfloat16;
    case v1::JobSpec::FLOAT16:
      return train::Precision::kFloat16;
    case v1::JobSpec::PRECISION_UNSPECIFIED:
    case v1::JobSpec::FLOAT32:
      MUSTER_CASE_NO_VALUE_OF(v1::JobSpec_Precision, JobSpec_Precision)
      break;
  }
  return train::Precision::kFloat32;
}

data::Order OrderOf(v1::BatchSpec::Order order) {
  switch (order) {
    case v1::BatchSpec::SEQUENTIAL:
      return data::Order::kSequential;
    case v1::BatchSpec::SHUFFLED_V2:
      return data::Order::kShuffledV2;
    case v1::BatchSpec::ORDER_UNSPECIFIED:
    case v1::BatchSpec::SHUFFLED:
      MUSTER_CASE_NO_VALUE_OF(v1::BatchSpec_Order, BatchSpec_Order)
      break;
  }
  return data::Order::kShuffled;
}

data::Last LastOf(v1::BatchSpec::Last last) {
  switch (last) {
    case v1::BatchSpec::PAD:
      return data::Last::kPad;
    case v1::BatchSpec::UNEVEN:
      return data::Last::kUneven;
    case v1::BatchSpec::LAST_UNSPECIFIED:
    case v1::BatchSpec::DROP:
      MUSTER_CASE_NO_VALUE_OF(v1::BatchSpec_Last, BatchSpec_Last)
      break;
  }
  return data::Last::kDrop;
}

train::DivideBy DivideByOf(v1::JoinSpec::DivideBy divide_by) {
  switch (divide_by) {
    case v1::JoinSpec::ACTIVE:
      return train::DivideBy::kActive;
    case v1::JoinSpec::SAMPLES:
      return train::DivideBy::kSamples;
    case v1::JoinSpec::DIVIDE_BY_UNSPECIFIED:
    case v1::JoinSpec::INITIAL:
      MUSTER_CASE_NO_VALUE_OF(v1::JoinSpec_DivideBy, JoinSpec_DivideBy)
      break;
  }
  return train::DivideBy::kInitial;
}

train::ExportConfig::From FromOf(v1::ExportSpec::From from) {
  using From = train::ExportConfig::From;
  switch (from) {
    case v1::ExportSpec::BEST:
      return From::kBest;
    case v1::ExportSpec::EMA:
      return From::kAverages;
    case v1::ExportSpec::LAST:
    case v1::ExportSpec::FROM_UNSPECIFIED:
      MUSTER_CASE_NO_VALUE_OF(v1::ExportSpec_From, ExportSpec_From)
      break;
  }
  return From::kLast;
}

train::StartConfig::What WhatOf(v1::StartSpec::What what) {
  using What = train::StartConfig::What;
  switch (what) {
    case v1::StartSpec::WEIGHTS_AND_OPTIMIZER:
      return What::kWeightsAndOptimizer;
    case v1::StartSpec::EVERYTHING:
      return What::kEverything;
    case v1::StartSpec::WEIGHTS:
    case v1::StartSpec::WHAT_UNSPECIFIED:
      MUSTER_CASE_NO_VALUE_OF(v1::StartSpec_What, StartSpec_What)
      break;
  }
  return What::kWeights;
}

train::EvaluationReshard ReshardOf(v1::EvaluationSpec::Reshard reshard) {
  switch (reshard) {
    case v1::EvaluationSpec::ALWAYS:
      return train::EvaluationReshard::kAlways;
    case v1::EvaluationSpec::NEVER:
      return train::EvaluationReshard::kNever;
    case v1::EvaluationSpec::AUTO:
    case v1::EvaluationSpec::RESHARD_UNSPECIFIED:
      MUSTER_CASE_NO_VALUE_OF(v1::EvaluationSpec_Reshard, EvaluationSpec_Reshard)
      break;
  }
  return train::EvaluationReshard::kAuto;
}

}  // namespace

absl::StatusOr<train::Job> JobFromSpec(const v1::JobSpec& given) {
  const v1::JobSpec spec = jobspec::ResolveDefaults(given);
  const v1::SpecProblems problems = jobspec::ValidateSpec(spec);
  if (problems.problems_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job is not valid:\n", jobspec::FormatProblems(problems)));
  }
  RETURN_IF_ERROR(CheckDevice(spec.device()));
  train::Job job;
  job.seed = spec.seed();
  job.numerics.threads = static_cast<int>(spec.threads());
  job.spec = spec;
  job.model.loss = Loss(spec.loss());
  if (spec.data().has_train()) {
    ASSIGN_OR_RETURN(job.data.train, Data("data.train", spec.data().train()));
  }
  if (spec.data().has_validate()) {
    ASSIGN_OR_RETURN(job.data.validate, Data("data.validate", spec.data().validate()));
  }
  if (spec.data().has_test()) {
    ASSIGN_OR_RETURN(job.data.test, Data("data.test", spec.data().test()));
  }
  if (spec.data().has_predict()) {
    ASSIGN_OR_RETURN(job.data.predict, Data("data.predict", spec.data().predict()));
  }
  ASSIGN_OR_RETURN(job.strategy, Strategy(spec.strategy()));
  if (spec.optimizer().kind_case() != v1::OptimizerSpec::KIND_NOT_SET) {
    ASSIGN_OR_RETURN(job.optimizer, Optimizer(spec.optimizer()));
  } else if (jobspec::Trains(spec)) {
    return Missing("optimizer");
  }
  job.schedule = Schedule(spec.schedule());
  job.batch = {.per_rank = std::max<int64_t>(spec.batch().per_rank(), 1),
               .accumulate = std::max<int64_t>(spec.batch().accumulate(), 1),
               .order = OrderOf(spec.batch().order()),
               .last = LastOf(spec.batch().last())};
  job.batch.uneven_inputs = {.divide_by = DivideByOf(spec.uneven_inputs().join().divide_by()),
                             .stop_at_first = spec.uneven_inputs().has_stop_at_first()};
  job.numerics.precision = PrecisionOf(spec.precision());
  if (job.numerics.precision == train::Precision::kFloat16) {
    job.numerics.loss_scale = {.initial = spec.loss_scale().initial(),
                               .growth_factor = spec.loss_scale().growth_factor(),
                               .backoff_factor = spec.loss_scale().backoff_factor(),
                               .growth_interval = spec.loss_scale().growth_interval()};
  }
  job.numerics.on_nan =
      spec.on_nan() == v1::JobSpec::SKIP_STEP ? train::OnNan::kSkipStep : train::OnNan::kFail;
  job.model.refresh = spec.trainable().refresh() == v1::TrainableSpec::MANUAL
                          ? train::RefreshMode::kManual
                          : train::RefreshMode::kAuto;
  job.model.trainable = RulesFromProto(spec.trainable().rules());
  if (spec.has_profile()) {
    job.profile = {.directory = spec.profile().directory(),
                   .steps = {spec.profile().steps().begin(), spec.profile().steps().end()}};
  }
  if (spec.has_activation_checkpointing()) {
    const auto& units = spec.activation_checkpointing().unit();
    job.model.recomputed_units = {{units.begin(), units.end()}};
  }
  if (spec.has_clip_grad_norm()) job.numerics.clip_grad_norm = spec.clip_grad_norm();
  for (const v1::StageSpec& stage : spec.stages()) {
    ASSIGN_OR_RETURN(job.stages.emplace_back(), StageOf(stage));
  }
  if (spec.has_checkpoint()) {
    job.checkpoint = {.directory = spec.checkpoint().directory(),
                      .every_steps = spec.checkpoint().every_steps(),
                      .background = spec.checkpoint().background()};
  }
  if (spec.has_start()) {
    job.start = {.checkpoint = spec.start().checkpoint(), .what = WhatOf(spec.start().what())};
  }
  if (spec.has_export_()) {
    job.weights_export = {.path = spec.export_().path(),
                          .overwrite = spec.export_().overwrite(),
                          .job_name = spec.name(),
                          .every_steps = spec.export_().every_steps(),
                          .vocab_size = spec.export_().vocab_size(),
                          .tokenizer_from = spec.model().hf(),
                          .from = FromOf(spec.export_().from())};
  }
  if (spec.has_ema()) {
    job.evaluation.averages = {.decay = spec.ema().decay(),
                               .every = spec.ema().every(),
                               .evaluate = spec.ema().evaluate()};
  }
  job.evaluation.reshard = ReshardOf(spec.evaluation().reshard());
  return job;
}

}  // namespace muster::control
