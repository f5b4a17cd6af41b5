#include "coordinator/membership/agents.h"

#include "absl/strings/str_cat.h"

namespace muster::membership {

Agents::Attached Agents::Attach(const Agent& agent, PeerStreamId stream, absl::Time now) {
  Attached result;
  const auto known = agents_.find(agent.node);
  if (known != agents_.end()) {
    result.replaced = known->second.stream;
    result.new_incarnation = known->second.incarnation != agent.incarnation;
  }
  Agent& entry = agents_[agent.node];
  const absl::Time last_seen = entry.last_seen;
  const absl::Duration answered = entry.answered;
  entry = agent;
  entry.stream = stream;
  entry.last_seen = last_seen;
  entry.answered = answered;
  entry.lease_end = absl::InfinitePast();
  Heard(&entry, now);
  return result;
}

void Agents::Expect(const Agent& agent, absl::Time now) {
  Agent& entry = agents_[agent.node];
  entry = agent;
  entry.stream = 0;
  entry.lease_end = now + timing_.Grant();
}

void Agents::Heard(const std::string& node, absl::Time now) {
  const auto agent = agents_.find(node);
  if (agent != agents_.end()) Heard(&agent->second, now);
}

void Agents::Heard(Agent* agent, absl::Time now) const {
  if (agent->last_seen != absl::InfinitePast()) {
    agent->answered += std::min(now - agent->last_seen, 2 * timing_.Heartbeat());
  }
  agent->last_seen = now;
  agent->lease_end = std::max(agent->lease_end, now + timing_.Grant());
}

bool Agents::Detached(const std::string& node, PeerStreamId stream) {
  const auto agent = agents_.find(node);
  if (agent == agents_.end() || agent->second.stream != stream) return false;
  agent->second.stream = 0;
  agent->second.lease_end = LeaseEndOfDetached(agent->second, detached_had_grace_, timing_.Grant());
  return true;
}

absl::Duration Agents::Answered(const std::string& node, absl::Time now) const {
  const Agent* agent = Find(node);
  if (agent == nullptr || agent->last_seen == absl::InfinitePast()) return absl::ZeroDuration();
  return agent->answered + std::min(now - agent->last_seen, 2 * timing_.Heartbeat());
}

std::vector<LostAgent> Agents::Expire(absl::Time now) {
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

const Agent* Agents::Find(const std::string& node) const {
  const auto found = agents_.find(node);
  return found == agents_.end() ? nullptr : &found->second;
}

void Agents::Grant(Grace whom, absl::Time now) {
  if (whom == Grace::kWithoutStream) detached_had_grace_ = now;
  for (auto& [node, agent] : agents_) {
    if (whom == Grace::kWithoutStream && agent.attached()) continue;
    if (agent.lease_end != absl::InfiniteFuture()) agent.lease_end = now + timing_.Grant();
  }
}

}  // namespace muster::membership
