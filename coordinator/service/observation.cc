#include "coordinator/service/observation.h"

#include <algorithm>
#include <utility>

#include "coordinator/membership/membership.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

using UsedSlots = std::map<std::string, std::map<jobs::Device, uint64_t>>;

std::optional<absl::Duration> Since(absl::Time then, absl::Time now) {
  if (then == absl::InfinitePast()) return std::nullopt;
  return std::max(now - then, absl::ZeroDuration());
}

ObservedRank ObserveRank(const jobs::Job& job, uint32_t number, const membership::Worker* worker,
                         absl::Time now) {
  const jobs::Rank& rank = job.ranks[number];
  ObservedRank out{
      .rank = number, .node = rank.node, .state = StateOf(rank, worker), .step = rank.step};
  if (worker == nullptr) return out;
  out.silence = Since(worker->last_seen, now);
  out.standstill = Since(worker->progressed, now);
  out.memory = worker->memory;
  return out;
}

// Returns the job's values without its ranks.
ObservedJob ObserveJob(const jobs::Job& job, const cluster::Cluster& cluster) {
  ObservedJob out{
      .id = job.id,
      .state = job.state(),
      .device = job.plan.device,
      .world_size = job.plan.world_size,
      .total_steps = jobs::TotalSteps(job),
      .generation = job.generation,
      .attempt = job.attempt,
      .restarts = job.restarts,
      .restarts_left = job.plan.max_restarts - std::min(job.plan.max_restarts, job.restarts_used),
      .operations_pending = job.commands.open().size(),
      .failed_saves = job.save_failure.has_value() ? job.save_failure->count : 0,
      .progress = job,
      .newest_steps = cluster.overview().NewestSteps(job.id)};
  for (const jobs::Checkpoint& checkpoint : job.checkpoints) {
    if (checkpoint.bad_reason.empty()) out.checkpoint_step = checkpoint.step;
  }
  for (const jobs::Rank& rank : job.ranks) {
    if (Trains(rank)) ++(rank.joined_since > 0 ? out.joined_ranks : out.active_ranks);
  }
  return out;
}

// Returns the time since which the job has waited for slots: its submission, or the beginning of
// its attempt. An attempt begins with the first resume after the end of the attempt before.
absl::Time WaitsSince(const jobs::Job& job) {
  if (job.ended_attempts.empty()) return job.create_time;
  const absl::Time ended = job.ended_attempts.back().end_time;
  for (const auto& command : job.commands.commands()) {
    const bool resumes = command.kind == v1::Operation::RESUME;
    if (resumes && command.create_time >= ended) return command.create_time;
  }
  return ended;
}

void ObserveRanks(const jobs::Job& job, const cluster::Cluster& cluster, size_t most,
                  absl::Time now, Observation* out, ObservedJob* told, UsedSlots* used) {
  for (uint32_t number = 0; number < job.ranks.size(); ++number) {
    const jobs::Rank& rank = job.ranks[number];
    const membership::Worker* worker = cluster.membership().FindWorker(job.id, number);
    ++out->ranks_by_state[StateOf(rank, worker)];
    if (!rank.exited) ++(*used)[rank.node][job.plan.device];
    if (told == nullptr || number >= most) {
      ++out->ranks_left_out;
    } else {
      told->ranks.push_back(ObserveRank(job, number, worker, now));
    }
  }
}

void ObserveJobs(const cluster::Cluster& cluster, const JobStateIndex& index,
                 const ObservedLimits& limits, absl::Time now, Observation* out, UsedSlots* used) {
  // Jobs with processes come first.
  std::vector<const jobs::Job*> live;
  std::vector<const jobs::Job*> others;
  for (const auto& [number, id] : index.open()) {
    const jobs::Job* job = cluster.Find(id);
    if (job == nullptr) continue;
    (job->live() ? live : others).push_back(job);
    out->operations_pending += job->commands.open().size();
    if (job->state() == jobs::State::kQueued) {
      DeviceQueue& queue = out->queues[job->plan.device];
      ++queue.jobs;
      queue.oldest_wait = std::max(queue.oldest_wait, now - WaitsSince(*job));
    }
  }
  size_t ranks_left = limits.ranks;
  for (const jobs::Job* job : live) {
    const bool told = out->jobs.size() < limits.jobs;
    if (told) out->jobs.push_back(ObserveJob(*job, cluster));
    ObserveRanks(*job, cluster, ranks_left, now, out, told ? &out->jobs.back() : nullptr, used);
    if (told) ranks_left -= out->jobs.back().ranks.size();
  }
  for (const jobs::Job* job : others) {
    if (out->jobs.size() < limits.jobs) out->jobs.push_back(ObserveJob(*job, cluster));
  }
  out->jobs_left_out = live.size() + others.size() - out->jobs.size();
  const absl::Time oldest = now - absl::Seconds(limits.ended_seconds);
  for (const JobStateIndex::Ended* all : {&index.failed(), &index.ended()}) {
    for (auto ended = all->rbegin(); ended != all->rend(); ++ended) {
      if (ended->first.first < oldest) break;
      const jobs::Job* job = cluster.Find(ended->second);
      if (job != nullptr) out->jobs.push_back(ObserveJob(*job, cluster));
    }
  }
}

void ObserveNodes(const cluster::Cluster& cluster, const UsedSlots& used, size_t most,
                  Observation* out) {
  for (const auto& [name, agent] : cluster.membership().agents().all()) {
    ObservedNode node{
        .node = name,
        .state = StateOf(cluster.overview().View(name), agent.attached()),
        .slots = {{jobs::Device::kCpu, agent.slots}, {jobs::Device::kCuda, agent.gpus.size()}},
        .used = {{jobs::Device::kCpu, 0}, {jobs::Device::kCuda, 0}},
        .quarantined = cluster.overview().QuarantinedSlots(name)};
    if (const auto found = used.find(name); found != used.end()) {
      for (const auto& [device, slots] : found->second) node.used[device] = slots;
    }
    ++out->nodes_by_state[node.state];
    for (const auto& [device, slots] : node.slots) out->slots[device] += slots;
    for (const auto& [device, slots] : node.used) out->used_slots[device] += slots;
    out->quarantined_slots += node.quarantined;
    if (out->nodes.size() < most) {
      out->nodes.push_back(std::move(node));
    } else {
      ++out->nodes_left_out;
    }
  }
}

}  // namespace

void JobStateIndex::Saw(const jobs::Job& job) {
  const auto found = seen_.find(job.id);
  if (found != seen_.end()) {
    const Seen& before = found->second;
    if (before.state == job.state() && before.number == job.number) return;
    Deleted(job.id);
  }
  seen_[job.id] = {job.state(), job.number, job.end_time()};
  ++counts_[job.state()];
  if (!job.terminal()) {
    open_[job.number] = job.id;
    return;
  }
  Ended& ended = job.state() == jobs::State::kFailed ? failed_ : ended_;
  ended[{job.end_time(), job.number}] = job.id;
  if (ended.size() > most_ended_) ended.erase(ended.begin());
}

void JobStateIndex::Deleted(const std::string& job_id) {
  const auto found = seen_.find(job_id);
  if (found == seen_.end()) return;
  const Seen& seen = found->second;
  --counts_[seen.state];
  open_.erase(seen.number);
  failed_.erase({seen.end_time, seen.number});
  ended_.erase({seen.end_time, seen.number});
  seen_.erase(found);
}

Observation Observe(const cluster::Cluster& cluster, const JobStateIndex& index,
                    const ObservedLimits& limits, absl::Time now) {
  Observation out;
  out.jobs_by_state = index.counts();
  UsedSlots used;
  ObserveJobs(cluster, index, limits, now, &out, &used);
  ObserveNodes(cluster, used, limits.nodes, &out);
  return out;
}

}  // namespace muster::service
