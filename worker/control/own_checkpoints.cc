#include "worker/control/own_checkpoints.h"

#include <algorithm>

namespace muster::control {

std::vector<std::string> OwnCheckpoints::Written(const std::string& name, Kind kind, bool away) {
  std::vector<std::string> surplus;
  if (kind == Kind::kBest && name != best_) {
    const bool among_newest = std::find(names_.begin(), names_.end(), best_) != names_.end();
    if (!best_.empty() && !among_newest) surplus.push_back(best_);
    best_ = name;
  }
  // Another save of the same step returns the outcome of the first one.
  std::erase(names_, name);
  names_.push_back(name);
  while (names_.size() > keep_) {
    if (names_.front() != best_) surplus.push_back(names_.front());
    names_.pop_front();
  }
  if (!away) surplus.clear();
  return surplus;
}

}  // namespace muster::control
