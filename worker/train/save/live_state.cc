#include "worker/train/save/live_state.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/jobspec/training_settings.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "worker/checkpoint/shard.h"
#include "worker/device/event.h"
#include "worker/models/seed.h"
#include "worker/optim/groups.h"
#include "worker/optim/options.h"
#include "worker/train/job/model_files.h"
#include "worker/train/job/stages.h"

namespace muster::train {
namespace {

using manifest::OptimizerSettings;

// Returns the settings of an optimizer without the learning rate.
OptimizerSettings SettingsOf(const optim::OptimizerOptions& options) {
  using Result = OptimizerSettings;
  return std::visit(Overloaded{[](const optim::SgdOptions& sgd) -> Result {
                                 return {{"momentum", {sgd.momentum}},
                                         {"weight_decay", {sgd.weight_decay}},
                                         {"nesterov", {sgd.nesterov ? 1.0 : 0.0}}};
                               },
                               [](const optim::AdadeltaOptions& adadelta) -> Result {
                                 return {{"rho", {adadelta.rho}},
                                         {"eps", {adadelta.eps}},
                                         {"weight_decay", {adadelta.weight_decay}}};
                               },
                               [](const optim::LionOptions& lion) -> Result {
                                 return {{"betas", {lion.beta1, lion.beta2}},
                                         {"weight_decay", {lion.weight_decay}}};
                               },
                               [](const auto& adam) -> Result {  // AdamW and Adam
                                 return {{"betas", {adam.beta1, adam.beta2}},
                                         {"eps", {adam.eps}},
                                         {"weight_decay", {adam.weight_decay}}};
                               }},
                    options);
}

// Fills `optimizer` with groups in the order of their first parameters, and returns the group of
// each parameter.
absl::StatusOr<std::vector<int64_t>> GroupsOf(const OptimizerConfig& config,
                                              const std::vector<std::string>& names,
                                              double learning_rate,
                                              manifest::OptimizerRecord* optimizer) {
  ASSIGN_OR_RETURN(const auto settings, optim::SettingsFor(names, config.kind, config.groups));
  optimizer->kind = optim::KindOf(config.kind);
  std::vector<optim::ParameterSettings> distinct;
  std::vector<int64_t> groups;
  bool mixed = false;
  for (const optim::ParameterSettings& own : settings) {
    const auto found = std::find(distinct.begin(), distinct.end(), own);
    groups.push_back(found - distinct.begin());
    if (found != distinct.end()) continue;
    distinct.push_back(own);
    OptimizerSettings& of_group = optimizer->groups.emplace_back(SettingsOf(own.options));
    of_group.insert(of_group.begin(), {"lr", {optim::RateOf(own, config.lr, learning_rate)}});
    optimizer->kinds.push_back(optim::KindOf(own.options));
    mixed = mixed || optimizer->kinds.back() != optimizer->kind;
  }
  if (!mixed) optimizer->kinds.clear();
  return groups;
}

}  // namespace

LiveState::LiveState(Dependencies deps)
    : deps_(std::move(deps)),
      trains_(AnyFit(deps_.job->stages)),
      plain_context_(std::make_unique<models::ForwardContext>(
          models::Mode::kTrain, models::MakeGenerator(deps_.job->seed, device()))) {}

parallel::Strategy* LiveState::strategy() const {
  return deps_.training == nullptr ? nullptr : &deps_.training->strategy();
}

models::ForwardContext& LiveState::context() const {
  return deps_.training == nullptr ? *plain_context_ : deps_.training->context();
}

absl::Status LiveState::AwaitParameters() {
  if (strategy() != nullptr) RETURN_IF_ERROR(strategy()->AwaitParameters());
  // On a GPU, a gather may still run, and fail, after the wait for it.
  device::Event::Now(device()).Await();
  return deps_.communicators.failure();
}

absl::Status LiveState::AwaitState() {
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(deps_.finite->CheckBuffers(deps_.session_state->step));
  return strategy()->VerifyParametersEqual(deps_.session_state->step);
}

absl::Status LiveState::AwaitWeights() {
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(deps_.finite->Check(deps_.session_state->step, strategy()));
  return strategy()->VerifyParametersEqual(deps_.session_state->step);
}

checkpoint::State LiveState::State() const {
  return StateOf(*deps_.model, deps_.training, deps_.communicators.gradients->world_size());
}

absl::StatusOr<checkpoint::ModelRecords> LiveState::Records(const checkpoint::State& state) const {
  const Mask none(deps_.trained->in_force().size());
  ASSIGN_OR_RETURN(auto records,
                   RecordsOf(*deps_.job, *deps_.model, state, deps_.session_state->learning_rate,
                             trains_ ? deps_.trained->in_force() : none,
                             trains_ ? deps_.training->HasState() : none));
  if (records.first_weights.empty()) records.first_weights = deps_.first_weights;
  // Beside an exported language model may lie its tokenizer and its settings for texts.
  const v1::ModelSpec& spec = deps_.job->spec.model();
  if (records.first_weights.empty() && spec.has_exported() && deps_.model->Input().vocab_size > 0) {
    records.first_weights = files::JoinPath(spec.exported(), "model.safetensors");
  }
  records.tokenizer = deps_.tokenizer;
  return records;
}

absl::Status SameOptimizers(const manifest::Manifest& saved, const checkpoint::ModelRecords& own) {
  std::map<std::string, std::string> kinds;
  for (const auto& parameter : own.parameters) {
    kinds[parameter.name] = own.optimizer.KindOf(parameter.group);
  }
  for (const auto& parameter : saved.parameters) {
    const auto kind = kinds.find(parameter.name);
    if (!parameter.ever_trained || kind == kinds.end()) continue;
    const std::string& found = saved.optimizer.KindOf(parameter.group);
    if (found == kind->second) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("found the state of ", found, " for parameter '", parameter.name,
                     "', but its optimizer in the job is ", kind->second,
                     "; start.what: weights takes the parameters alone"));
  }
  return absl::OkStatus();
}

absl::StatusOr<checkpoint::ModelRecords> RecordsOf(const Job& job, const models::Model& model,
                                                   const checkpoint::State& state,
                                                   double learning_rate, const Mask& trained,
                                                   const Mask& ever_trained) {
  std::map<std::string, const checkpoint::StateItem*> items;
  for (const checkpoint::StateItem& item : state.items) {
    if (item.slot == "param") items[item.parameter] = &item;
  }
  std::map<std::string, size_t> numbers;
  for (const auto& parameter : model.Parameters()) numbers.emplace(parameter.name, numbers.size());
  const std::vector<std::string> order = model.SourceOrder();
  checkpoint::ModelRecords records{.optimizer = {},
                                   .parameters = {},
                                   .config = model.HuggingFaceConfig(),
                                   .first_weights = WeightsPath(job.spec.model()),
                                   .settings = jobspec::TrainingSettingsJson(job.spec),
                                   .model_hash = model.file_hash()};
  std::vector<int64_t> groups(order.size());
  if (job.optimizer.has_value()) {
    ASSIGN_OR_RETURN(groups, GroupsOf(*job.optimizer, order, learning_rate, &records.optimizer));
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t number = numbers.at(order[i]);
    const checkpoint::StateItem& item = *items.at(order[i]);
    records.parameters.push_back({.name = order[i],
                                  .shape = item.shape,
                                  .dtype = checkpoint::DTypeName(item.type),
                                  .trainable = trained[number],
                                  .ever_trained = ever_trained[number],
                                  .group = groups[i]});
  }
  return records;
}

}  // namespace muster::train
