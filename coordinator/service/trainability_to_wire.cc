// Which parameters of a job are trained, as clients see it.
#include <algorithm>
#include <string>
#include <utility>

#include "common/printable/printable.h"
#include "common/trainability/from_proto.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

v1::TrainabilityChange ToWire(const jobs::Job& job, const jobs::TrainabilityChange& change) {
  v1::TrainabilityChange out;
  out.ParseFromString(change.contents);
  out.set_version(change.version);
  out.set_generation(change.generation);
  Set(out.mutable_time(), change.time);
  const commands::Command* command = job.commands.Find(change.command);
  if (command == nullptr) {
    out.set_requested_by("model code");
  } else {
    out.set_requested_by(WhoAsked(command->requester, command->requested_by));
    out.set_operation(OperationName(job.id, command->number));
  }
  return out;
}

}  // namespace

std::optional<muster::Trainability> ParametersOf(const jobs::Job& job) {
  v1::TrainabilityInForce model;
  if (job.trainability.parameters.empty() || !model.ParseFromString(job.trainability.parameters)) {
    return std::nullopt;
  }
  std::vector<muster::Trainability::Parameter> parameters;
  for (const v1::ModelParameter& parameter : model.parameters()) {
    parameters.push_back({.name = parameter.name(),
                          .trained = parameter.trained(),
                          .can_be_trained = !parameter.never_trained(),
                          .elements = static_cast<int64_t>(parameter.elements())});
  }
  v1::TrainabilityInForce in_force;
  in_force.ParseFromString(job.trainability.in_force);
  auto trainability =
      muster::Trainability::Create(std::move(parameters), RulesFromProto(in_force.rules()));
  if (!trainability.ok()) return std::nullopt;
  return *std::move(trainability);
}

std::optional<v1::Trainability> TrainabilityOf(const jobs::Job& job, size_t most) {
  if (job.trainability.version == 0) return std::nullopt;
  v1::Trainability out;
  v1::TrainabilityInForce in_force;
  in_force.ParseFromString(job.trainability.in_force);
  out.set_version(job.trainability.version);
  // Model code may make thousands of rules.
  for (const auto& rule : in_force.rules()) {
    if (static_cast<size_t>(out.rules_size()) < most) *out.add_rules() = rule;
  }
  for (const auto& name : in_force.pending()) {
    if (static_cast<size_t>(out.pending_size()) < most) out.add_pending(name);
  }
  out.set_trainable_params(in_force.trainable_params());
  out.set_frozen_params(in_force.frozen_params());
  const auto& history = job.trainability.history;
  for (size_t i = history.size() - std::min(history.size(), most); i < history.size(); ++i) {
    *out.add_history() = ToWire(job, history[i]);
  }
  return out;
}

}  // namespace muster::service
