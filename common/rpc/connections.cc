#include "common/rpc/connections.h"

#include <algorithm>

namespace muster {
namespace {

std::pair<size_t, int64_t> PlaceOf(const std::set<int64_t>& ids) {
  return {ids.size(), -*ids.begin()};
}

}  // namespace

void ConnectionsByPeer::Add(const std::string& peer, int64_t id) {
  std::set<int64_t>& ids = ids_[peer];
  if (!ids.empty()) order_.erase(PlaceOf(ids));
  ids.insert(id);
  order_.insert(PlaceOf(ids));
}

void ConnectionsByPeer::Remove(const std::string& peer, int64_t id) {
  const auto found = ids_.find(peer);
  if (found == ids_.end()) return;
  std::set<int64_t>& ids = found->second;
  order_.erase(PlaceOf(ids));
  ids.erase(id);
  if (ids.empty()) {
    ids_.erase(found);
  } else {
    order_.insert(PlaceOf(ids));
  }
}

std::optional<int64_t> ConnectionsByPeer::OldestOf(const std::string& peer) const {
  const auto found = ids_.find(peer);
  if (found == ids_.end()) return std::nullopt;
  return *found->second.begin();
}

std::optional<int64_t> ConnectionsByPeer::OldestOfTheMost() const {
  if (order_.empty()) return std::nullopt;
  return -order_.rbegin()->second;
}

ConnectionLimits ConnectionLimits::For(size_t open_files) {
  const ConnectionLimits most;
  const size_t eighth = std::max<size_t>(open_files / 8, 1);
  ConnectionLimits limits;
  limits.silent = std::min(most.silent, std::max<size_t>(eighth / 2, 1));
  limits.local = std::min(most.local, eighth);
  const size_t used = open_files / 4 + 2 * (limits.silent + limits.local);
  const size_t left = open_files > used ? (open_files - used) / 2 : 0;
  limits.total = std::clamp<size_t>(left, 1, most.total);
  limits.per_peer = std::clamp<size_t>(limits.total / 4, 1, most.per_peer);
  return limits;
}

std::optional<Connections::Id> Connections::Arrived(Id id, Transport transport,
                                                    const std::string& peer, absl::Time now) {
  silent_.emplace(id, Silent{now, transport, peer});
  silent_by_peer_.Add(peer, id);
  if (silent_.size() <= limits_.silent) return std::nullopt;
  const auto oldest = silent_by_peer_.OldestOfTheMost();
  if (oldest.has_value()) ForgetSilent(*oldest);
  return oldest;
}

std::optional<Connections::Id> Connections::Spoke(Id id, absl::Time now) {
  EndTrials(now);
  const auto found = silent_.find(id);
  if (found == silent_.end()) return id;
  const Transport transport = found->second.transport;
  const std::string peer = found->second.peer;
  ForgetSilent(id);

  Group& group = GroupOf(transport);
  const absl::Time trial_ends = now + limits_.trial;
  spoken_.emplace(id, Spoken{transport, peer, trial_ends});
  trials_.emplace(trial_ends, id);
  group.on_trial.Add(peer, id);
  const size_t of_peer = ++group.of_peer[peer];
  const size_t all = ++group.all;

  // Only this process's user and root connect over a Unix socket; they share one limit.
  const bool local = transport == Transport::kLocal;
  std::optional<Id> closed;
  if (!local && of_peer > limits_.per_peer) {
    closed = group.on_trial.OldestOf(peer);
  } else if (all > (local ? limits_.local : limits_.total)) {
    closed = group.on_trial.OldestOfTheMost();
  }
  if (closed.has_value()) ForgetSpoken(*closed);
  return closed;
}

void Connections::Ended(Id id) {
  ForgetSilent(id);
  ForgetSpoken(id);
}

std::optional<Connections::Id> Connections::Overdue(absl::Time now) {
  if (NextOverdue() > now) return std::nullopt;
  const Id oldest = silent_.begin()->first;
  ForgetSilent(oldest);
  return oldest;
}

absl::Time Connections::NextOverdue() const {
  if (silent_.empty()) return absl::InfiniteFuture();
  return silent_.begin()->second.since + limits_.handshake;
}

void Connections::ForgetSilent(Id id) {
  const auto found = silent_.find(id);
  if (found == silent_.end()) return;
  silent_by_peer_.Remove(found->second.peer, id);
  silent_.erase(found);
}

void Connections::ForgetSpoken(Id id) {
  const auto found = spoken_.find(id);
  if (found == spoken_.end()) return;
  const Spoken& one = found->second;
  Group& group = GroupOf(one.transport);
  group.on_trial.Remove(one.peer, id);
  trials_.erase({one.trial_ends, id});
  --group.all;
  const auto count = group.of_peer.find(one.peer);
  if (--count->second == 0) group.of_peer.erase(count);
  spoken_.erase(found);
}

void Connections::EndTrials(absl::Time now) {
  while (!trials_.empty() && trials_.begin()->first <= now) {
    const Id id = trials_.begin()->second;
    const Spoken& one = spoken_.at(id);
    GroupOf(one.transport).on_trial.Remove(one.peer, id);
    trials_.erase(trials_.begin());
  }
}

}  // namespace muster
