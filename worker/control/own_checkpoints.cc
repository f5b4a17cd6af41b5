#include "worker/control/own_checkpoints.h"

namespace muster::control {

std::vector<std::string> OwnCheckpoints::Written(const std::string& name, bool away) {
  // Another save of the same step returns the outcome of the first one.
  std::erase(names_, name);
  names_.push_back(name);
  std::vector<std::string> surplus;
  while (names_.size() > keep_) {
    surplus.push_back(names_.front());
    names_.pop_front();
  }
  if (!away) surplus.clear();
  return surplus;
}

}  // namespace muster::control
