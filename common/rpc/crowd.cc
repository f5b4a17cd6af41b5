#include "common/rpc/crowd.h"

namespace muster {
namespace {

std::pair<size_t, int64_t> PlaceOf(const std::set<int64_t>& ids) {
  return {ids.size(), -*ids.begin()};
}

}  // namespace

void Crowd::Add(const std::string& peer, int64_t id) {
  std::set<int64_t>& ids = ids_[peer];
  if (!ids.empty()) order_.erase(PlaceOf(ids));
  ids.insert(id);
  order_.insert(PlaceOf(ids));
}

void Crowd::Remove(const std::string& peer, int64_t id) {
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

std::optional<int64_t> Crowd::OldestOf(const std::string& peer) const {
  const auto found = ids_.find(peer);
  if (found == ids_.end()) return std::nullopt;
  return *found->second.begin();
}

std::optional<int64_t> Crowd::OldestOfTheMost() const {
  if (order_.empty()) return std::nullopt;
  return -order_.rbegin()->second;
}

}  // namespace muster
