// Which peer has the most connections of one kind. Pure; one thread.
#ifndef MUSTER_COMMON_RPC_CROWD_H_
#define MUSTER_COMMON_RPC_CROWD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace muster {

class Crowd {
 public:
  // Ids grow with time.
  void Add(const std::string& peer, int64_t id);
  // Nothing, if it is not there.
  void Remove(const std::string& peer, int64_t id);

  std::optional<int64_t> OldestOf(const std::string& peer) const;
  // The oldest one of the peer that has the most. Of peers that have as many, the oldest of all.
  std::optional<int64_t> OldestOfTheMost() const;

 private:
  std::map<std::string, std::set<int64_t>> ids_;
  // How many each peer has, and its oldest one negated: the last element is what OldestOfTheMost
  // looks for, however many peers there are.
  std::set<std::pair<size_t, int64_t>> order_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CROWD_H_
