#include "worker/train/training/setup.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/jobspec/jobspec.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "worker/device/memory.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/registry.h"
#include "worker/models/select_units.h"
#include "worker/optim/optimizers.h"
#include "worker/train/job/model_files.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {
namespace {

// Returns nullopt if the job has no weights file.
std::optional<checkpoint::WeightsOptions> WeightsOf(const v1::ModelSpec& model) {
  const std::string path = WeightsPath(model);
  if (path.empty()) return std::nullopt;
  if (!model.has_weights_from()) {
    return checkpoint::WeightsOptions{.path = path,
                                      .pad_vocabulary = model.has_hf() && model.vocab_size() > 0};
  }
  using Missing = checkpoint::WeightsOptions::Missing;
  const v1::WeightsSpec& spec = model.weights_from();
  return checkpoint::WeightsOptions{
      .path = path,
      .take = {spec.take().begin(), spec.take().end()},
      .rename = {spec.rename().begin(), spec.rename().end()},
      .missing = spec.missing() == v1::WeightsSpec::INITIAL ? Missing::kInitial : Missing::kRefuse,
      .pad_vocabulary = spec.pad_vocabulary()};
}

const char* NameOf(parallel::UnitEvent::Kind kind) {
  switch (kind) {
    case parallel::UnitEvent::Kind::kGather:
      return "gather ";
    case parallel::UnitEvent::Kind::kFree:
      return "free ";
    case parallel::UnitEvent::Kind::kForward:
      return "forward of ";
    case parallel::UnitEvent::Kind::kBeforeBackward:
      return "backward of ";
    case parallel::UnitEvent::Kind::kAfterBackward:
      return "after backward of ";
  }
  return "";
}

void RecordUnit(const parallel::UnitEvent& event, trace::Recorder* recorder) {
  if (!recorder->on()) return;
  recorder->Mark(trace::Lane::kUnits,
                 absl::StrCat(NameOf(event.kind), event.unit.empty() ? "the root" : event.unit));
  recorder->Level("gathered parameters", event.whole_bytes);
}

std::vector<std::string> NamesOf(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.Parameters()) names.push_back(parameter.name);
  return names;
}

// Adds parameters whose pieces are divided among the ranks.
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

absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(
    const Job& job, models::DeferredValues* deferred,
    std::optional<checkpoint::LoadedWeights>* weights) {
  std::unique_ptr<models::Model> model;
  {
    const memory::MemoryScope scope(memory::Purpose::kParameters);
    const models::DeferredValues::Scope deferring(deferred);
    ASSIGN_OR_RETURN(model, models::Create(job.spec.model(), job.seed));
  }
  if (deferred != nullptr) {
    const memory::MemoryScope scope(memory::Purpose::kParameters);
    for (const auto& buffer : model->Buffers()) deferred->Settle(buffer.tensor);
  }
  if (job.model.loss.has_value()) {
    RETURN_IF_ERROR(model->SetLoss(*job.model.loss));
  } else if (jobspec::HasDocuments(job.spec.data()) && !model->Input().own_loss) {
    RETURN_IF_ERROR(model->SetLoss({.ignore_index = jobspec::kIgnoredTarget}));
  }
  if (const auto options = WeightsOf(job.spec.model()); options.has_value()) {
    auto loaded = checkpoint::LoadWeights(*options, *model, deferred);
    if (!loaded.ok()) return Annotate(loaded.status(), WeightsField(job.spec.model()));
    if (weights != nullptr) *weights = *std::move(loaded);
  }
  return model;
}

void MoveTo(c10::Device device, const models::Model& model, Moved moved) {
  if (device.is_cpu()) return;
  const memory::MemoryScope scope(memory::Purpose::kParameters);
  const auto move = [&](const at::Tensor& tensor) {
    tensor.set_data(device::On(device, tensor.detach()));
  };
  for (const auto& buffer : model.Buffers()) move(buffer.tensor);
  if (moved == Moved::kBuffers) return;
  for (const auto& parameter : model.Parameters()) move(parameter.tensor);
}

absl::StatusOr<std::unique_ptr<parallel::Strategy>> BuildStrategy(
    const Job& job, const models::Model& model, const parallel::Communicators& communicators,
    trace::Recorder* recorder, const ParameterValues& values, parallel::KeptMemory kept) {
  using Result = absl::StatusOr<std::unique_ptr<parallel::Strategy>>;
  return std::visit(Overloaded{[&](const parallel::DdpOptions& options) -> Result {
                                 return parallel::CreateDdp(model.Parameters(), model.Buffers(),
                                                            communicators.gradients, options);
                               },
                               [&](const parallel::ShardedDdpOptions& options) -> Result {
                                 return parallel::CreateShardedDdp(
                                     model.Parameters(), model.Buffers(), &model.root(),
                                     communicators.gradients, options, std::move(kept));
                               },
                               [&](parallel::FsdpOptions options) -> Result {
                                 if (recorder != nullptr) {
                                   options.trace = [recorder](const parallel::UnitEvent& event) {
                                     RecordUnit(event, recorder);
                                   };
                                 }
                                 if (values != nullptr) options.values = values;
                                 auto strategy = parallel::CreateFsdp(
                                     model.Parameters(), model.Buffers(), &model.root(),
                                     communicators, options, std::move(kept));
                                 if (!strategy.ok())
                                   return Annotate(strategy.status(), "strategy.fsdp");
                                 return strategy;
                               }},
                    job.strategy);
}

std::string StrategyName(const StrategyConfig& config) {
  return std::visit(Overloaded{[](const parallel::DdpOptions&) { return "ddp"; },
                               [](const parallel::ShardedDdpOptions&) { return "sharded_ddp"; },
                               [](const parallel::FsdpOptions&) { return "fsdp"; }},
                    config);
}

absl::StatusOr<std::vector<const models::Unit*>> RecomputedUnits(const Job& job,
                                                                 const models::Model& model) {
  constexpr char kSetting[] = "activation_checkpointing.unit";
  if (!job.model.recomputed_units.has_value()) return std::vector<const models::Unit*>();
  auto units = models::SelectUnits(model.root(), *job.model.recomputed_units);
  if (!units.ok()) return Annotate(units.status(), kSetting);
  if (!units->empty()) return units;
  return absl::InvalidArgumentError(absl::StrCat(
      kSetting,
      ": the model has no blocks (units whose name ends in a number); name units by patterns"));
}

absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(
    const OptimizerConfig& config, const models::Model& model,
    const std::vector<parallel::Piece>& pieces, std::vector<std::vector<at::Tensor>> states) {
  const std::vector<std::string> names = NamesOf(model);
  ASSIGN_OR_RETURN(const auto settings, optim::SettingsFor(names, config.kind, config.groups));
  std::vector<optim::ParameterWithOptions> parameters;
  for (const parallel::Piece& piece : pieces) {
    const auto& own = settings[piece.parameter];
    parameters.push_back({{names[piece.parameter], piece.tensor}, own.options});
    optim::OptimizedParameter& parameter = parameters.back().parameter;
    parameter.lr_scale = optim::RateOf(own, config.lr, 1);
    parameter.bucket = piece.bucket;
    if (!states.empty()) parameter.state = std::move(states[parameters.size() - 1]);
  }
  return optim::CreateMixed(std::move(parameters));
}

absl::StatusOr<ParameterSlots> SlotsFor(const OptimizerConfig& config, const models::Model& model) {
  ASSIGN_OR_RETURN(const auto settings,
                   optim::SettingsFor(NamesOf(model), config.kind, config.groups));
  ParameterSlots slots;
  for (const auto& own : settings) slots.push_back(optim::SlotsOf(own.options));
  return slots;
}

checkpoint::State TrainingState(const models::Model& model, const TrainingParts& training,
                                int world_size) {
  checkpoint::StateBuilder builder(world_size);
  const auto* shards = training.strategy != nullptr ? training.strategy->store().shards() : nullptr;
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
    OptimizerState state =
        StateOfOptimizer(*training.strategy, *training.optimizer, parameters,
                         training.mask != nullptr ? *training.mask : FlagsOf(parameters));
    if (training.parked != nullptr) state = Join(std::move(state), *training.parked);
    AddState(state, *training.slots, parameters, shards != nullptr ? shards->types : types,
             !training.strategy->plan().sharded, &builder);
  }
  if (training.averages != nullptr) training.averages->AddTo(&builder);
  if (training.scaler != nullptr) {
    for (const auto& piece : training.scaler->State()) {
      builder.AddReplicated(piece.slot, piece.parameter, piece.tensor);
    }
  }
  return builder.Build();
}

}  // namespace muster::train
