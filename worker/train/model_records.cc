#include "worker/train/model_records.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "common/manifest/manifest.h"
#include "common/overloaded/overloaded.h"
#include "common/status/status.h"
#include "worker/checkpoint/shard.h"
#include "worker/optim/groups.h"

namespace muster::train {
namespace {

using manifest::OptimizerSettings;

// The kind's name in job files, and its settings but for the learning rate.
std::pair<std::string, OptimizerSettings> SettingsOf(const optim::OptimizerOptions& options,
                                                     std::optional<double> weight_decay) {
  using Result = std::pair<std::string, OptimizerSettings>;
  const auto decay = [&](double own) -> std::vector<double> {
    return {weight_decay.value_or(own)};
  };
  return std::visit(Overloaded{[&](const optim::AdamWOptions& adamw) -> Result {
                                 return {"adamw",
                                         {{"betas", {adamw.beta1, adamw.beta2}},
                                          {"eps", {adamw.eps}},
                                          {"weight_decay", decay(adamw.weight_decay)}}};
                               },
                               [&](const optim::SgdOptions& sgd) -> Result {
                                 return {"sgd",
                                         {{"momentum", {sgd.momentum}},
                                          {"weight_decay", decay(sgd.weight_decay)},
                                          {"nesterov", {sgd.nesterov ? 1.0 : 0.0}}}};
                               },
                               [&](const optim::AdamOptions& adam) -> Result {
                                 return {"adam",
                                         {{"betas", {adam.beta1, adam.beta2}},
                                          {"eps", {adam.eps}},
                                          {"weight_decay", decay(adam.weight_decay)}}};
                               },
                               [&](const optim::AdadeltaOptions& adadelta) -> Result {
                                 return {"adadelta",
                                         {{"rho", {adadelta.rho}},
                                          {"eps", {adadelta.eps}},
                                          {"weight_decay", decay(adadelta.weight_decay)}}};
                               },
                               [&](const optim::LionOptions& lion) -> Result {
                                 return {"lion",
                                         {{"betas", {lion.beta1, lion.beta2}},
                                          {"weight_decay", decay(lion.weight_decay)}}};
                               }},
                    options);
}

// Fills `optimizer` with groups in the order of their first parameters, and returns the group of
// each parameter.
absl::StatusOr<std::vector<int64_t>> GroupsOf(const OptimizerConfig& config,
                                              const std::vector<std::string>& names,
                                              double learning_rate,
                                              manifest::OptimizerRecord* optimizer) {
  ASSIGN_OR_RETURN(const auto settings, optim::SettingsFor(names, config.groups));
  std::map<std::pair<std::optional<double>, double>, int64_t> numbers;
  std::vector<int64_t> groups;
  for (const optim::GroupSettings& own : settings) {
    const auto [group, added] =
        numbers.emplace(std::pair(own.weight_decay, own.lr_scale), optimizer->groups.size());
    groups.push_back(group->second);
    if (!added) continue;
    auto [kind, of_group] = SettingsOf(config.kind, own.weight_decay);
    of_group.insert(of_group.begin(), {"lr", {learning_rate * own.lr_scale}});
    optimizer->kind = std::move(kind);
    optimizer->groups.push_back(std::move(of_group));
  }
  return groups;
}

std::string FirstWeights(const v1::ModelSpec& model) {
  return model.has_weights_from() ? model.weights_from().file() : model.weights();
}

}  // namespace

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
                                   .first_weights = FirstWeights(job.spec.model())};
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
