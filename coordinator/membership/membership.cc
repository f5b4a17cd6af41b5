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

Membership::Attached Membership::AttachAgent(const Agent& agent, PeerStreamId session,
                                             absl::Time now) {
  Attached result;
  const auto known = agents_.find(agent.node);
  if (known != agents_.end()) {
    result.replaced = known->second.session;
    result.new_incarnation = known->second.incarnation != agent.incarnation;
  }
  Agent& entry = agents_[agent.node];
  const absl::Time last_seen = entry.last_seen;
  const absl::Duration answered = entry.answered;
  entry = agent;
  entry.session = session;
  entry.last_seen = last_seen;
  entry.answered = answered;
  entry.lease_end = absl::InfinitePast();
  Heard(&entry, now);
  return result;
}

void Membership::ExpectAgent(const Agent& agent, absl::Time now) {
  Agent& entry = agents_[agent.node];
  entry = agent;
  entry.session = 0;
  entry.lease_end = now + timing_.Grant();
}

void Membership::AgentHeard(const std::string& node, absl::Time now) {
  const auto agent = agents_.find(node);
  if (agent != agents_.end()) Heard(&agent->second, now);
}

void Membership::Heard(Agent* agent, absl::Time now) const {
  if (agent->last_seen != absl::InfinitePast()) {
    agent->answered += std::min(now - agent->last_seen, 2 * timing_.Heartbeat());
  }
  agent->last_seen = now;
  agent->lease_end = std::max(agent->lease_end, now + timing_.Grant());
}

template <typename Holder>
absl::Time Membership::LeaseEndOfDetached(const Holder& holder) const {
  if (holder.last_seen >= detached_had_grace_) return holder.lease_end;
  return std::max(holder.lease_end, detached_had_grace_ + timing_.Grant());
}

bool Membership::AgentDetached(const std::string& node, PeerStreamId session) {
  const auto agent = agents_.find(node);
  if (agent == agents_.end() || agent->second.session != session) return false;
  agent->second.session = 0;
  agent->second.lease_end = LeaseEndOfDetached(agent->second);
  return true;
}

void Membership::ExpectWorker(const WorkerId& id, const std::string& node, bool attached_before,
                              absl::Time now, const std::optional<ProgressLimits>& limits) {
  Worker& worker = workers_[{id.job, id.rank}];
  worker = Worker{.id = id, .node = node};
  worker.limits = limits.value_or(timing_.DefaultProgressLimits());
  worker.progressed = now;
  worker.agent_answered = Answered(node, now);
  worker.session_started = attached_before;
  if (attached_before) worker.lease_end = now + timing_.Grant();
}

absl::StatusOr<PeerStreamId> Membership::AttachWorker(const WorkerId& id, PeerStreamId session,
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
  const PeerStreamId replaced = worker.session;
  worker.session = session;
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
  // The time does not count in which no message came from it, because it could not report progress.
  if (worker->lease_end <= now) worker->progressed = now;
  worker->last_seen = now;
  worker->agent_answered = Answered(worker->node, now);
  // Infinite until it first attaches.
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

bool Membership::WorkerDetached(const WorkerId& id, PeerStreamId session) {
  Worker* worker = Find(id);
  if (worker == nullptr || worker->session != session) return false;
  worker->session = 0;
  worker->lease_end = LeaseEndOfDetached(*worker);
  return true;
}

void Membership::Release(const std::string& job, uint32_t rank) {
  const auto found = workers_.find({job, rank});
  if (found != workers_.end()) found->second.released = true;
}

PeerStreamId Membership::Forget(const std::string& job, uint32_t rank) {
  const auto found = workers_.find({job, rank});
  if (found == workers_.end()) return 0;
  const PeerStreamId session = found->second.session;
  workers_.erase(found);
  return session;
}

void Membership::ExpectForGood(const Agent& agent) {
  Agent& entry = agents_[agent.node];
  entry = agent;
  entry.session = 0;
  entry.lease_end = absl::InfiniteFuture();
}

std::vector<PeerStreamId> Membership::LoseNode(
    const std::string& node, const std::function<bool(const std::string& job)>& continues,
    absl::Time now) {
  std::vector<PeerStreamId> sessions;
  for (auto& [key, worker] : workers_) {
    if (worker.node != node || continues(worker.id.job)) continue;
    worker.node_lost = true;
    // A worker that never attached holds no lease, and is refused from now on.
    if (worker.lease_end == absl::InfiniteFuture()) worker.lease_end = now;
    if (worker.attached()) sessions.push_back(std::exchange(worker.session, 0));
  }
  return sessions;
}

absl::Duration Membership::Answered(const std::string& node, absl::Time now) const {
  const Agent* agent = FindAgent(node);
  if (agent == nullptr || agent->last_seen == absl::InfinitePast()) return absl::ZeroDuration();
  return agent->answered + std::min(now - agent->last_seen, 2 * timing_.Heartbeat());
}

bool Membership::AgentAnswers(const Worker& worker, absl::Time now) const {
  const Agent* agent = FindAgent(worker.node);
  return agent != nullptr && agent->attached() &&
         now - agent->last_seen <= 2 * timing_.Heartbeat() &&
         Answered(worker.node, now) - worker.agent_answered >= timing_.Grant();
}

std::vector<Membership::LostAgent> Membership::ExpireAgents(absl::Time now) {
  std::vector<LostAgent> lost;
  for (auto agent = agents_.begin(); agent != agents_.end();) {
    if (agent->second.lease_end > now) {
      ++agent;
      continue;
    }
    lost.push_back(
        {agent->second, absl::StrCat("the agent of node '", agent->first, "' was silent for ",
                                     absl::FormatDuration(timing_.Grant()))});
    agent = agents_.erase(agent);
  }
  return lost;
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
  worker->session = 0;  // the caller that expires it closes the stream
}

void Membership::GrantFreshGrace(absl::Time now) {
  for (auto& [node, agent] : agents_) {
    if (agent.lease_end != absl::InfiniteFuture()) agent.lease_end = now + timing_.Grant();
  }
  for (auto& [key, worker] : workers_) {
    if (worker.lease_end != absl::InfiniteFuture()) worker.lease_end = now + timing_.Grant();
    worker.progressed = now;
  }
}

void Membership::GrantGraceToDetached(absl::Time now) {
  detached_had_grace_ = now;
  for (auto& [node, agent] : agents_) {
    if (!agent.attached() && agent.lease_end != absl::InfiniteFuture()) {
      agent.lease_end = now + timing_.Grant();
    }
  }
  for (auto& [key, worker] : workers_) {
    if (!worker.attached() && worker.lease_end != absl::InfiniteFuture()) {
      worker.lease_end = now + timing_.Grant();
    }
    // Its reports waited for the store.
    worker.progressed = now;
  }
}

const Agent* Membership::FindAgent(const std::string& node) const {
  const auto found = agents_.find(node);
  return found == agents_.end() ? nullptr : &found->second;
}

const Worker* Membership::FindWorker(const std::string& job, uint32_t rank) const {
  const auto found = workers_.find({job, rank});
  return found == workers_.end() ? nullptr : &found->second;
}

}  // namespace muster::membership
