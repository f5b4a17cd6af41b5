#include "common/rpc/connections.h"

#include <algorithm>

namespace muster {

ConnectionLimits ConnectionLimits::For(size_t open_files) {
  const ConnectionLimits most;
  // Half of the open files for two each of those that have spoken, and a quarter for the silent.
  const size_t quarter = std::max<size_t>(open_files / 4, 1);
  ConnectionLimits limits;
  limits.silent = std::min(most.silent, quarter);
  limits.total = std::min(most.total, quarter);
  limits.per_peer = std::min(most.per_peer, limits.total);
  return limits;
}

std::optional<Connections::Id> Connections::Arrived(Id id, const std::string& peer,
                                                    absl::Time now) {
  silent_.emplace(id, std::pair(now, peer));
  peers_[peer].silent.insert(id);
  if (silent_.size() <= limits_.silent) return std::nullopt;
  return Shed();
}

std::optional<Connections::Id> Connections::Shed() {
  const auto most = std::max_element(
      peers_.begin(), peers_.end(),
      [](const auto& a, const auto& b) { return a.second.silent.size() < b.second.silent.size(); });
  if (most == peers_.end() || most->second.silent.empty()) return std::nullopt;
  const Id oldest = *most->second.silent.begin();
  Forget(oldest);
  return oldest;
}

bool Connections::Spoke(Id id) {
  const auto found = silent_.find(id);
  if (found == silent_.end()) return false;
  const std::string peer = found->second.second;
  Peer& its = peers_[peer];
  const bool room = peers_of_spoken_.size() < limits_.total && its.spoken < limits_.per_peer;
  if (room) ++its.spoken;  // before Forget, which removes a peer without connections
  Forget(id);
  if (room) peers_of_spoken_.emplace(id, peer);
  return room;
}

void Connections::Ended(Id id) {
  const auto spoken = peers_of_spoken_.find(id);
  if (spoken == peers_of_spoken_.end()) {
    Forget(id);
    return;
  }
  const std::string peer = spoken->second;
  peers_of_spoken_.erase(spoken);
  --peers_[peer].spoken;
  RemoveIfEmpty(peer);
}

std::optional<Connections::Id> Connections::Overdue(absl::Time now) {
  if (NextOverdue() > now) return std::nullopt;
  const Id oldest = silent_.begin()->first;
  Forget(oldest);
  return oldest;
}

absl::Time Connections::NextOverdue() const {
  if (silent_.empty()) return absl::InfiniteFuture();
  return silent_.begin()->second.first + limits_.first_byte;
}

void Connections::Forget(Id id) {
  const auto found = silent_.find(id);
  if (found == silent_.end()) return;
  const std::string peer = found->second.second;
  silent_.erase(found);
  peers_[peer].silent.erase(id);
  RemoveIfEmpty(peer);
}

void Connections::RemoveIfEmpty(const std::string& peer) {
  const auto found = peers_.find(peer);
  if (found->second.silent.empty() && found->second.spoken == 0) peers_.erase(found);
}

}  // namespace muster
