// The snapshot of a job that clients see.
#include "coordinator/jobs/failure.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

v1::RankStatus::State RankState(const jobs::Rank& rank, const membership::Worker* worker) {
  if (rank.exited || worker == nullptr) return v1::RankStatus::EXITED;
  if (worker->attached()) return v1::RankStatus::ATTACHED;
  return worker->lease_end == absl::InfiniteFuture() ? v1::RankStatus::STARTING
                                                     : v1::RankStatus::DETACHED;
}

void AddRank(const jobs::Job& job, uint32_t number, const cluster::Cluster& cluster, v1::Job* out) {
  const jobs::Rank& rank = job.ranks[number];
  const membership::Worker* worker = cluster.membership().FindWorker(job.id, number);
  auto* status = out->add_ranks();
  status->set_rank(number);
  status->set_node(rank.node);
  status->set_pid(rank.pid);
  status->set_device("cpu");
  status->set_state(RankState(rank, worker));
  status->set_step(rank.step);
  if (worker == nullptr) return;
  if (worker->last_seen != absl::InfinitePast()) {
    Set(status->mutable_last_seen(), worker->last_seen);
  }
  status->set_progress(worker->progress);
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
}

}  // namespace

v1::Job ToWire(const jobs::Job& job, const cluster::Cluster& cluster) {
  v1::Job out;
  out.set_id(job.id);
  out.set_state(static_cast<v1::Job::State>(job.state));
  out.set_state_reason(job.state_reason);
  out.set_version(job.version);
  out.mutable_spec()->ParseFromString(job.spec);
  Set(out.mutable_create_time(), job.create_time);
  if (job.start_time != absl::InfinitePast()) Set(out.mutable_start_time(), job.start_time);
  if (job.end_time != absl::InfinitePast()) Set(out.mutable_end_time(), job.end_time);
  out.set_generation(job.generation);
  out.set_stage(job.stage);
  out.set_step(job.step);
  out.set_total_steps(job.plan.total_steps);
  if (job.loss.has_value()) out.set_loss(*job.loss);
  if (job.validation_loss.has_value()) {
    out.set_validation_loss(*job.validation_loss);
    out.set_validation_step(job.validation_step);
  }
  out.set_samples_per_second(cluster.SamplesPerSecond(job.id));
  out.set_world_size(job.plan.world_size);
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) AddRank(job, rank, cluster, &out);
  for (const jobs::Checkpoint& checkpoint : job.checkpoints) {
    auto* added = out.add_checkpoints();
    added->set_step(checkpoint.step);
    added->set_generation(checkpoint.generation);
    added->set_path(checkpoint.path);
    Set(added->mutable_create_time(), checkpoint.create_time);
    added->set_bad_reason(checkpoint.bad_reason);
  }
  out.set_restarts(job.restarts);
  SetFailure(job, &out);
  out.set_exported_path(job.exported_path);
  return out;
}

}  // namespace muster::service
