#include "worker/train/setup.h"

#include <ATen/core/Tensor.h>
#include <xxhash.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/status.h"
#include "worker/checkpoint/weights.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/registry.h"
#include "worker/models/select_units.h"
#include "worker/train/trainable.h"

namespace muster::train {

absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(const Job& job,
                                                          models::DeferredValues* deferred) {
  std::unique_ptr<models::Model> model;
  {
    const memory::MemoryScope scope(memory::Purpose::kParameters);
    const models::DeferredValues::Scope deferring(deferred);
    ASSIGN_OR_RETURN(model, models::Create(job.model.spec, job.seed));
  }
  if (deferred != nullptr) {
    const memory::MemoryScope scope(memory::Purpose::kParameters);
    for (const auto& buffer : model->Buffers()) deferred->Settle(buffer.tensor);
  }
  if (job.model.loss.has_value()) RETURN_IF_ERROR(model->SetLoss(*job.model.loss));
  if (const std::string& weights = job.model.spec.weights(); !weights.empty()) {
    RETURN_IF_ERROR(
        Annotate(checkpoint::LoadWeights(weights, *model, deferred), "model.weights"));
  }
  return model;
}

namespace {

void RecordUnit(const parallel::UnitEvent& event, trace::Recorder* recorder) {
  if (!recorder->on()) return;
  constexpr const char* kWhat[] = {"gather ", "free ", "forward of ", "backward of ",
                                   "after backward of "};
  recorder->Mark(trace::Lane::kUnits, absl::StrCat(kWhat[static_cast<int>(event.kind)],
                                                   event.unit.empty() ? "the root" : event.unit));
  recorder->Level("gathered parameters", event.whole_bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<parallel::Strategy>> BuildStrategy(
    const Job& job, const models::Model& model, comm::Communicator* communicator,
    trace::Recorder* recorder, const ParameterValues& values) {
  if (const auto* sharded = std::get_if<parallel::ShardedDdpOptions>(&job.strategy)) {
    return parallel::CreateShardedDdp(model.Parameters(), model.Buffers(), &model.root(),
                                      communicator, *sharded);
  }
  if (const auto* fsdp = std::get_if<parallel::FsdpOptions>(&job.strategy)) {
    parallel::FsdpOptions options = *fsdp;
    if (recorder != nullptr) {
      options.trace = [recorder](const parallel::UnitEvent& event) { RecordUnit(event, recorder); };
    }
    if (values != nullptr) options.values = values;
    auto strategy = parallel::CreateFsdp(model.Parameters(), model.Buffers(), &model.root(),
                                         communicator, options);
    if (!strategy.ok()) return Annotate(strategy.status(), "strategy.fsdp");
    return strategy;
  }
  return parallel::CreateDdp(model.Parameters(), model.Buffers(), communicator,
                             std::get<parallel::DdpOptions>(job.strategy));
}

std::string StrategyName(const StrategyConfig& config) {
  constexpr const char* kNames[] = {"ddp", "sharded_ddp", "fsdp"};
  return kNames[config.index()];
}

absl::StatusOr<std::vector<const models::Unit*>> RecomputedUnits(const Job& job,
                                                                 const models::Model& model) {
  constexpr char kSetting[] = "activation_checkpointing.unit";
  if (!job.recomputed_units.has_value()) return std::vector<const models::Unit*>();
  auto units = models::SelectUnits(model.root(), *job.recomputed_units);
  if (!units.ok()) return Annotate(units.status(), kSetting);
  if (!units->empty()) return units;
  return absl::InvalidArgumentError(absl::StrCat(
      kSetting,
      ": the model has no blocks (units whose name ends in a number); name units by patterns"));
}

absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(
    const OptimizerConfig& config, const models::Model& model,
    const std::vector<parallel::Piece>& pieces, std::vector<std::vector<at::Tensor>> states) {
  const std::vector<models::Parameter> model_parameters = model.Parameters();
  std::vector<std::string> names;
  for (const auto& parameter : model_parameters) names.push_back(parameter.name);
  ASSIGN_OR_RETURN(const auto settings, optim::SettingsFor(names, config.groups));
  std::vector<optim::OptimizedParameter> parameters;
  for (const parallel::Piece& piece : pieces) {
    const auto& own = settings[piece.parameter];
    parameters.push_back({names[piece.parameter], piece.tensor, own.weight_decay, own.lr_scale});
    if (!states.empty()) parameters.back().state = std::move(states[parameters.size() - 1]);
  }
  if (const auto* adamw = std::get_if<optim::AdamWOptions>(&config.kind)) {
    return optim::CreateAdamW(std::move(parameters), *adamw);
  }
  return optim::CreateSgd(std::move(parameters), std::get<optim::SgdOptions>(config.kind));
}

namespace {

// By parameter.
std::vector<std::vector<checkpoint::StateBuilder::Part>> PartsOf(
    const layout::Placement& placement) {
  std::vector<std::vector<checkpoint::StateBuilder::Part>> parts(placement.elements.size());
  for (size_t rank = 0; rank < placement.holders.size(); ++rank) {
    for (const layout::Range& range : placement.holders[rank]) {
      parts[range.parameter].push_back({static_cast<int>(rank), range.begin, range.end});
    }
  }
  return parts;
}

// The parameters where each rank has its own pieces only.
void AddShards(const std::vector<models::Parameter>& parameters,
               const parallel::ParameterShards& shards, checkpoint::StateBuilder* builder) {
  const auto parts = PartsOf(shards.holders);
  std::map<size_t, const parallel::Piece*> held;
  for (const parallel::Piece& piece : shards.held) held[piece.parameter] = &piece;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    builder->AddSharded({"param", name, tensor.sizes().vec(), shards.types[i]}, parts[i]);
    if (const auto own = held.find(i); own != held.end()) {
      builder->Hold(own->second->begin, own->second->tensor);
    }
  }
}

}  // namespace

checkpoint::State TrainingState(const models::Model& model, const TrainingParts& training,
                                int world_size) {
  checkpoint::StateBuilder builder(world_size);
  const auto* shards = training.strategy != nullptr ? training.strategy->shards() : nullptr;
  if (shards != nullptr) {
    AddShards(model.Parameters(), *shards, &builder);
  } else {
    for (const auto& parameter : model.Parameters()) {
      builder.AddReplicated("param", parameter.name, parameter.tensor.detach());
    }
  }
  for (const auto& buffer : model.Buffers()) {
    builder.AddReplicated("buffer", buffer.name, buffer.tensor);
  }
  if (training.optimizer != nullptr) {
    const std::vector<models::Parameter> parameters = model.Parameters();
    std::vector<at::ScalarType> types;
    for (const auto& parameter : parameters) types.push_back(parameter.tensor.scalar_type());
    OptimizerState state = StateOfOptimizer(*training.strategy, *training.optimizer, parameters,
                                            FlagsOf(parameters));
    if (training.parked != nullptr) state = Join(std::move(state), *training.parked);
    AddState(state, training.optimizer->Slots(), parameters,
             shards != nullptr ? shards->types : types, !training.strategy->sharded(), &builder);
  }
  if (training.scaler != nullptr) {
    for (const auto& piece : training.scaler->State()) {
      builder.AddReplicated(piece.slot, piece.parameter, piece.tensor);
    }
  }
  return builder.Build();
}

namespace {

// Every bit of the numbers counts.
template <typename... Numbers>
std::string Exactly(Numbers... numbers) {
  std::string text;
  ((text += absl::StrFormat("%.17g ", static_cast<double>(numbers))), ...);
  return text;
}

std::string Describe(const parallel::DdpOptions& ddp) {
  return Exactly(ddp.bucket_bytes, ddp.first_bucket_bytes);
}
std::string Describe(const parallel::ShardedDdpOptions& sharded) {
  return Exactly(sharded.bucket_bytes, sharded.first_bucket_bytes,
                 static_cast<int>(sharded.reduce_every), sharded.reduce_in_bfloat16);
}
std::string Describe(const parallel::FsdpOptions& fsdp) {
  return absl::StrCat(
      absl::StrJoin(fsdp.units, ","), " ",
      Exactly(fsdp.reshard_after_forward, fsdp.frozen_resident, static_cast<int>(fsdp.reduce_every),
              fsdp.reduce_in_bfloat16, fsdp.parameters_in_bfloat16));
}
std::string Describe(const optim::AdamWOptions& adamw) {
  return Exactly(adamw.beta1, adamw.beta2, adamw.eps, adamw.weight_decay);
}
std::string Describe(const optim::SgdOptions& sgd) {
  return Exactly(sgd.momentum, sgd.weight_decay, sgd.nesterov);
}
std::string Describe(const optim::LossScaleOptions& scale) {
  return Exactly(scale.initial, scale.growth_factor, scale.backoff_factor, scale.growth_interval);
}
std::string Describe(const optim::ParameterGroup& group) {
  const auto part = [](const std::optional<double>& value) {
    return value.has_value() ? Exactly(*value) : std::string("- ");
  };
  return absl::StrCat(group.match.size(), " ", group.match, " ", part(group.weight_decay),
                      part(group.lr_scale));
}
std::string Describe(const optim::Constant& constant) { return Exactly(constant.warmup_steps); }
std::string Describe(const optim::WarmupCosine& cosine) {
  return Exactly(cosine.warmup_steps, cosine.total_steps, cosine.min_ratio);
}
std::string Describe(const optim::Linear& linear) {
  return Exactly(linear.warmup_steps, linear.total_steps, linear.min_ratio);
}
std::string Describe(const optim::StepDecay& decay) {
  return Exactly(decay.warmup_steps, decay.step_size, decay.gamma);
}
std::string Describe(const optim::OneCycle& cycle) {
  return Exactly(cycle.total_steps, cycle.pct_start, cycle.div_factor, cycle.final_div_factor,
                 static_cast<int>(cycle.anneal), cycle.three_phase);
}

std::string Sizes(const RankData* data) {
  if (data == nullptr) return "none";
  if (data->own_sizes.empty()) return absl::StrCat(data->dataset->size());
  return absl::StrCat("own ", absl::StrJoin(data->own_sizes, ","));
}

}  // namespace

int64_t PlanFingerprint(const Job& job, const models::Model& model,
                        const parallel::Strategy* strategy, const RankData* train,
                        const RankData* validate) {
  std::string plan =
      absl::StrCat(StrategyName(job.strategy), " ",
                   std::visit([](const auto& options) { return Describe(options); }, job.strategy),
                   strategy == nullptr ? 0 : strategy->layout_fingerprint(), ";");
  for (const auto& parameter : model.Parameters()) {
    absl::StrAppend(&plan, parameter.name);
    for (const int64_t size : parameter.tensor.sizes()) absl::StrAppend(&plan, ",", size);
    absl::StrAppend(&plan, ";");
  }
  for (const auto& buffer : model.Buffers()) {
    absl::StrAppend(&plan, "buffer ", buffer.name, " ", buffer.tensor.nbytes(), ";");
  }
  absl::StrAppend(&plan, "batch ", job.batch.per_rank, " ", job.batch.accumulate, " ",
                  static_cast<int>(job.batch.order), " ", static_cast<int>(job.batch.last), " ",
                  static_cast<int>(job.uneven_inputs.divide_by), " ",
                  job.uneven_inputs.stop_at_first, ";");
  if (const auto& loss = job.model.loss; loss.has_value()) {
    absl::StrAppend(&plan, "loss ", static_cast<int>(loss->kind), " ",
                    loss->ignore_index.has_value() ? absl::StrCat(*loss->ignore_index) : "-", " ",
                    Exactly(loss->label_smoothing), ";");
  }
  if (job.recomputed_units.has_value()) {
    absl::StrAppend(&plan, "recomputed ", absl::StrJoin(*job.recomputed_units, ","), ";");
  }
  absl::StrAppend(&plan, "clip ", Exactly(job.clip_grad_norm.value_or(0)), "; seed ", job.seed,
                  ";");
  if (job.optimizer.has_value()) {
    absl::StrAppend(
        &plan, "optimizer ", job.optimizer->kind.index(), " ", Exactly(job.optimizer->lr),
        std::visit([](const auto& kind) { return Describe(kind); }, job.optimizer->kind), ";");
    for (const auto& group : job.optimizer->groups)
      absl::StrAppend(&plan, "group ", Describe(group), ";");
  }
  absl::StrAppend(&plan, "precision ", static_cast<int>(job.precision), " ",
                  job.precision == Precision::kFloat16 ? Describe(job.loss_scale) : "", "; on_nan ",
                  static_cast<int>(job.on_nan), ";");
  absl::StrAppend(&plan, "schedule ", job.schedule.index(), " ",
                  std::visit([](const auto& kind) { return Describe(kind); }, job.schedule), ";");
  absl::StrAppend(&plan, "samples ", Sizes(train), "; ", Sizes(validate), ";");
  for (const Stage& stage : job.stages) {
    const auto* fit = std::get_if<FitStage>(&stage);
    absl::StrAppend(&plan, "stage ", fit ? fit->steps : 0, " ", fit ? fit->validate_every : 0, ";");
  }
  return static_cast<int64_t>(XXH3_64bits(plan.data(), plan.size()));
}

}  // namespace muster::train
