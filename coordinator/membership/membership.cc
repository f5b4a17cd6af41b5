#include "coordinator/membership/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"

namespace muster::membership {
namespace {

absl::Status Stale(const std::string& reason, const std::string& message) {
  return Refuse(absl::StatusCode::kFailedPrecondition, reason, message);
}

}  // namespace

void Membership::ExpectWorker(const WorkerId& id, const std::string& node, bool attached_before,
                              absl::Time now, const std::optional<ProgressLimits>& limits) {
  Worker& worker = workers_[{id.job, id.rank}];
  worker = Worker{.id = id, .node = node};
  worker.limits = limits.value_or(timing_.DefaultProgressLimits());
  worker.progressed = now;
  worker.agent_answered = agents_.Answered(node, now);
  worker.session_started = attached_before;
  if (attached_before) worker.lease_end = now + timing_.Grant();
}

absl::StatusOr<PeerStreamId> Membership::AttachWorker(const WorkerId& id, PeerStreamId stream,
                                                      absl::Time now, uint32_t protocol) {
  const auto found = workers_.find({id.job, id.rank});
  const std::string who =
      absl::StrCat("job '", id.job, "' generation ", id.generation, " rank ", id.rank);
  if (found == workers_.end()) {
    return Stale("STALE_INCARNATION", absl::StrCat(who, ": this process was given up"));
  }
  Worker& worker = found->second;
  if (worker.id.generation != id.generation) {
    return Stale("STALE_GENERATION",
                 absl::StrCat(who, ": the generation is now ", worker.id.generation));
  }
  if (worker.id.incarnation != id.incarnation) {
    return Stale("STALE_INCARNATION", absl::StrCat(who, ": another process owns this rank"));
  }
  if (worker.given_up)
    return Stale("STALE_INCARNATION", absl::StrCat(who, ": this process was given up"));
  if (worker.node_lost) {
    return Stale("STALE_INCARNATION",
                 absl::StrCat(who, ": its node '", worker.node, "' was given up"));
  }
  const PeerStreamId replaced = worker.stream;
  worker.stream = stream;
  worker.protocol = protocol;
  Heard(&worker, now);
  return replaced;
}

Worker* Membership::Find(const WorkerId& id) {
  const auto found = workers_.find({id.job, id.rank});
  const bool known = found != workers_.end() && found->second.id == id && !found->second.given_up;
  return known ? &found->second : nullptr;
}

void Membership::Heard(Worker* worker, absl::Time now) {
  // The time without a message does not count, because the worker could not report progress.
  if (worker->lease_end <= now) worker->progressed = now;
  worker->last_seen = now;
  worker->agent_answered = agents_.Answered(worker->node, now);
  // The lease is infinite until the worker first attaches.
  const bool holds = worker->lease_end != absl::InfiniteFuture();
  worker->lease_end =
      holds ? std::max(worker->lease_end, now + timing_.Grant()) : now + timing_.Grant();
}

void Membership::WorkerHeard(const WorkerId& id, absl::Time now) {
  Worker* worker = Find(id);
  if (worker != nullptr && !worker->node_lost) Heard(worker, now);
}

bool Membership::WorkerProgressed(const WorkerId& id, uint64_t step, const std::string& progress,
                                  uint64_t activity, Collectives collectives, absl::Time now) {
  WorkerHeard(id, now);
  Worker* worker = Find(id);
  if (worker == nullptr) return false;
  if (worker->activity != activity || worker->collectives.begun != collectives.begun ||
      worker->collectives.ended != collectives.ended) {
    worker->progressed = now;
  }
  worker->activity = activity;
  worker->collectives = std::move(collectives);
  if (worker->step == step && worker->progress == progress) return false;
  worker->step = step;
  worker->progress = progress;
  worker->progressed = now;
  return true;
}

void Membership::WorkerMemory(const WorkerId& id, const std::string& memory) {
  if (Worker* worker = Find(id); worker != nullptr) worker->memory = memory;
}

void Membership::WorkerWrites(const WorkerId& id, const std::optional<FileWriting>& writing) {
  if (Worker* worker = Find(id); worker != nullptr) worker->writing = writing;
}

void Membership::SessionStarted(const WorkerId& id, absl::Time now) {
  Worker* worker = Find(id);
  if (worker == nullptr) return;
  worker->session_started = true;
  worker->progressed = now;
}

bool Membership::WorkerDetached(const WorkerId& id, PeerStreamId stream) {
  Worker* worker = Find(id);
  if (worker == nullptr || worker->stream != stream) return false;
  worker->stream = 0;
  worker->lease_end = LeaseEndOfDetached(*worker, detached_had_grace_, timing_.Grant());
  return true;
}

void Membership::Release(const std::string& job, uint32_t rank) {
  const auto found = workers_.find({job, rank});
  if (found != workers_.end()) found->second.released = true;
}

PeerStreamId Membership::Forget(const std::string& job, uint32_t rank) {
  const auto found = workers_.find({job, rank});
  if (found == workers_.end()) return 0;
  const PeerStreamId stream = found->second.stream;
  workers_.erase(found);
  return stream;
}

std::vector<PeerStreamId> Membership::LoseNode(
    const std::string& node, const std::function<bool(const std::string& job)>& continues,
    absl::Time now) {
  std::vector<PeerStreamId> streams;
  for (auto& [key, worker] : workers_) {
    if (worker.node != node || continues(worker.id.job)) continue;
    worker.node_lost = true;
    // A worker that never attached holds no lease, and is refused from now on.
    if (worker.lease_end == absl::InfiniteFuture()) worker.lease_end = now;
    if (worker.attached()) streams.push_back(std::exchange(worker.stream, 0));
  }
  return streams;
}

bool Membership::AgentAnswers(const Worker& worker, absl::Time now) const {
  const Agent* agent = agents_.Find(worker.node);
  return agent != nullptr && agent->attached() &&
         now - agent->last_seen <= 2 * timing_.Heartbeat() &&
         agents_.Answered(worker.node, now) - worker.agent_answered >= timing_.Grant();
}

Membership::Expired Membership::ExpireWorkers(absl::Time now) {
  Expired expired;
  for (auto found = workers_.begin(); found != workers_.end();) {
    Worker& worker = found->second;
    if (worker.node_lost && worker.lease_end <= now) {
      expired.gone.push_back(worker);
      found = workers_.erase(found);
      continue;
    }
    ++found;
    if (worker.lease_end > now || worker.released || worker.given_up || worker.node_lost ||
        !AgentAnswers(worker, now)) {
      continue;
    }
    expired.workers.push_back(
        {worker, absl::StrCat(worker.attached() ? "was silent for "
                                                : "lost its connection and was silent for ",
                              absl::FormatDuration(timing_.Grant()))});
    GiveUp(&worker);
  }
  std::stable_sort(expired.workers.begin(), expired.workers.end(),
                   [](const LostWorker& a, const LostWorker& b) {
                     return a.worker.progressed < b.worker.progressed;
                   });
  ExpireHung(now, &expired);
  return expired;
}

void Membership::ExpireHung(absl::Time now, Expired* expired) {
  for (auto of_job = workers_.begin(); of_job != workers_.end();) {
    const std::string job = of_job->first.first;
    std::vector<Watched> ranks;
    for (; of_job != workers_.end() && of_job->first.first == job; ++of_job) {
      const Worker& worker = of_job->second;
      if (worker.released || worker.given_up) continue;
      ranks.push_back({.rank = worker.id.rank,
                       .silent = worker.node_lost || worker.lease_end <= now,
                       .session_started = worker.session_started,
                       .limits = worker.limits,
                       .moved = worker.progressed,
                       .waited = worker.waited,
                       .step = worker.step,
                       .progress = worker.progress,
                       .collectives = &worker.collectives});
    }
    const std::vector<bool> wait = WaitForOthers(ranks, now);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (!wait[i]) continue;
      ranks[i].waited = now;
      workers_.at({job, ranks[i].rank}).waited = now;
    }
    const auto hang = FindHang(ranks, timing_.lease, now);
    if (!hang.has_value()) continue;
    Worker& worker = workers_.at({job, hang->rank});
    expired->workers.push_back({worker, hang->reason, hang->collectives, hang->permanent});
    GiveUp(&worker);
  }
}

void Membership::GiveUp(Worker* worker) {
  worker->given_up = true;
  worker->stream = 0;  // the caller that expires the worker closes the stream
}

void Membership::Grant(Grace whom, absl::Time now) {
  if (whom == Grace::kWithoutStream) detached_had_grace_ = now;
  agents_.Grant(whom, now);
  for (auto& [key, worker] : workers_) {
    // The reports of workers with a stream waited for the store.
    worker.progressed = now;
    if (whom == Grace::kWithoutStream && worker.attached()) continue;
    if (worker.lease_end != absl::InfiniteFuture()) worker.lease_end = now + timing_.Grant();
  }
}

const Worker* Membership::FindWorker(const std::string& job, uint32_t rank) const {
  const auto found = workers_.find({job, rank});
  return found == workers_.end() ? nullptr : &found->second;
}

}  // namespace muster::membership
