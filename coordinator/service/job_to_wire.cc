// The snapshot of a job that clients see, and the states of its ranks and of nodes.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/printable/printable.h"
#include "common/slots/slots.h"
#include "common/trainability/from_proto.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

// The number of entries of a job's long lists that its snapshot has: the newest ones.
constexpr size_t kShownChanges = 16;

void SetDevice(const jobs::Job& job, const jobs::Rank& rank, const cluster::Cluster& cluster,
               v1::RankStatus* out) {
  if (job.plan.device == jobs::Device::kCpu) return out->set_device("cpu");
  const uint32_t index = rank.slot - kFirstGpuSlot;
  out->set_device(absl::StrCat("cuda:", index));
  const auto& agents = cluster.membership().agents().all();
  const auto agent = agents.find(rank.node);
  if (agent == agents.end()) return;
  for (const membership::Gpu& gpu : agent->second.gpus) {
    if (gpu.index == index) out->set_device_name(gpu.name);
  }
}

void AddRank(const jobs::Job& job, uint32_t number, const cluster::Cluster& cluster, v1::Job* out) {
  const jobs::Rank& rank = job.ranks[number];
  const membership::Worker* worker = cluster.membership().FindWorker(job.id, number);
  auto* status = out->add_ranks();
  status->set_rank(number);
  status->set_node(rank.node);
  status->set_pid(rank.pid);
  SetDevice(job, rank, cluster, status);
  status->set_state(StateOf(rank, worker));
  status->set_step(rank.step);
  if (Trains(rank)) {
    if (rank.joined_since > 0) {
      status->set_joined_since_step(rank.joined_since);
      out->set_joined_ranks(out->joined_ranks() + 1);
    } else {
      out->set_active_ranks(out->active_ranks() + 1);
    }
  }
  if (worker == nullptr) return;
  if (worker->last_seen != absl::InfinitePast()) {
    Set(status->mutable_last_seen(), worker->last_seen);
  }
  status->set_progress(worker->progress);
  status->set_collectives_begun(worker->collectives.begun);
  status->set_collectives_ended(worker->collectives.ended);
  if (!worker->collectives.newest.empty()) {
    status->set_last_collective(worker->collectives.newest.back().name);
  }
  if (!worker->memory.empty()) status->mutable_memory()->ParseFromString(worker->memory);
}

void SetFailure(const jobs::Job& job, v1::Job* out) {
  const auto failure = jobs::RootCause(job.failures);
  if (!failure.has_value()) return;
  auto* message = out->mutable_failure();
  message->set_rank(failure->root.rank);
  message->set_node(failure->root.node);
  message->set_generation(failure->root.generation);
  message->set_step(failure->root.step);
  message->set_reason(failure->root.reason);
  message->set_log_tail(failure->root.log_tail);
  for (const std::string& reason : failure->consequences) message->add_consequences(reason);
  for (const std::string& collective : failure->root.collectives) {
    message->add_collectives(collective);
  }
}

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
  // The rules may be thousands, because model code can make them.
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

v1::Checkpoint ToWire(const jobs::Checkpoint& checkpoint) {
  v1::Checkpoint out;
  out.set_step(checkpoint.step);
  out.set_generation(checkpoint.generation);
  out.set_path(checkpoint.path);
  Set(out.mutable_create_time(), checkpoint.create_time);
  out.set_bad_reason(checkpoint.bad_reason);
  out.set_origin(static_cast<v1::Checkpoint::Origin>(checkpoint.origin));
  out.set_origin_reason(checkpoint.origin_reason);
  out.set_bytes(checkpoint.bytes);
  out.set_stall_seconds(absl::ToDoubleSeconds(checkpoint.stall));
  out.set_write_seconds(absl::ToDoubleSeconds(checkpoint.write_time));
  out.set_best(checkpoint.best);
  return out;
}

v1::Job ToWire(const jobs::Job& job, const cluster::Cluster& cluster) {
  v1::Job out;
  out.set_id(job.id);
  out.set_state(static_cast<v1::Job::State>(job.state()));
  out.set_state_reason(job.state_reason);
  out.set_reason(job.reason_code);
  out.set_version(job.version);
  out.mutable_spec()->ParseFromString(job.spec);
  Set(out.mutable_create_time(), job.create_time);
  out.set_submitter(job.submitter);
  out.set_job_file(job.job_file);
  if (job.start_time != absl::InfinitePast()) Set(out.mutable_start_time(), job.start_time);
  if (job.end_time() != absl::InfinitePast()) Set(out.mutable_end_time(), job.end_time());
  out.set_generation(job.generation);
  out.set_stage(job.stage);
  out.set_step(job.step);
  out.set_total_steps(jobs::TotalSteps(job));
  SetMetrics(&out, job, cluster.overview().NewestSteps(job.id));
  out.set_world_size(job.plan.world_size);
  if (job.waiting()) {
    const std::string warning = cluster.overview().TooBigFor(job.plan.world_size, job.plan.device);
    if (!warning.empty()) {
      out.add_warnings(absl::StrCat(warning, "; it waits until nodes offer more"));
    }
  }
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) AddRank(job, rank, cluster, &out);
  for (const jobs::Checkpoint& checkpoint : job.checkpoints) {
    *out.add_checkpoints() = ToWire(checkpoint);
  }
  for (const jobs::Checkpoint& checkpoint : job.found_checkpoints) {
    *out.add_found_checkpoints() = ToWire(checkpoint);
  }
  out.set_attempt(job.attempt);
  for (const jobs::AttemptEnd& end : job.ended_attempts) {
    v1::AttemptEnd* message = out.add_ended_attempts();
    message->set_attempt(end.attempt);
    message->set_state(static_cast<v1::Job::State>(end.state));
    message->set_state_reason(end.state_reason);
    Set(message->mutable_end_time(), end.end_time);
    message->set_step(end.step);
  }
  for (const jobs::SettingChange& change : job.setting_changes) {
    v1::SettingChange* message = out.add_setting_changes();
    message->set_attempt(change.attempt);
    Set(message->mutable_time(), change.time);
    message->set_requester(change.requester);
    message->set_path(change.path);
    message->set_old_value(change.old_value);
    message->set_new_value(change.new_value);
  }
  out.set_restarts(job.restarts);
  out.set_restarts_left(job.plan.max_restarts - std::min(job.plan.max_restarts, job.restarts_used));
  if (job.not_before() != absl::InfinitePast()) Set(out.mutable_not_before(), job.not_before());
  SetFailure(job, &out);
  out.set_exported_path(job.exported_path);
  if (auto trainability = TrainabilityOf(job, kShownChanges); trainability.has_value()) {
    *out.mutable_trainability() = *std::move(trainability);
  }
  const auto& commands = job.commands.commands();
  for (size_t i = commands.size() - std::min(commands.size(), kShownChanges); i < commands.size();
       ++i) {
    *out.add_operations() = ToWire(job, commands[i], cluster);
  }
  if (const auto& failure = job.save_failure; failure.has_value()) {
    auto* message = out.mutable_save_failure();
    message->set_step(failure->step);
    message->set_message(failure->message);
    Set(message->mutable_time(), failure->time);
    message->set_count(failure->count);
  }
  for (const jobs::JobEvent& event : job.events) {
    auto* message = out.add_events();
    Set(message->mutable_time(), event.time);
    message->set_generation(event.generation);
    message->set_step(event.step);
    message->set_reason(event.reason);
    message->set_message(event.message);
  }
  return out;
}

v1::RankStatus::State StateOf(const jobs::Rank& rank, const membership::Worker* worker) {
  if (rank.exited || worker == nullptr) return v1::RankStatus::EXITED;
  if (worker->attached()) return v1::RankStatus::ATTACHED;
  return worker->lease_end == absl::InfiniteFuture() ? v1::RankStatus::STARTING
                                                     : v1::RankStatus::DETACHED;
}

bool Trains(const jobs::Rank& rank) {
  return rank.session_started && !rank.finished && !rank.exited;
}

v1::Node::State StateOf(const cluster::NodeView& view, bool attached) {
  using View = cluster::NodeView;
  switch (view.what) {
    case View::kDraining:
      return v1::Node::DRAINING;
    case View::kCordoned:
      return v1::Node::CORDONED;
    case View::kLeftOut:
      return v1::Node::LEFT_OUT;
    case View::kOpen:
      break;
  }
  return attached ? v1::Node::ATTACHED : v1::Node::DETACHED;
}

}  // namespace muster::service
