#include "worker/control/own_checkpoints.h"

#include <algorithm>

namespace muster::control {

std::vector<std::string> OwnCheckpoints::Written(const std::string& name, bool away) {
  // A save of the same step again gives the first one's outcome.
  std::erase(names_, name);
  names_.push_back(name);
  std::vector<std::string> surplus;
  while (away && names_.size() > keep_) {
    surplus.push_back(names_.front());
    names_.pop_front();
  }
  return surplus;
}

void OwnCheckpoints::Removed(const std::vector<std::string>& names) {
  std::erase_if(names_, [&](const std::string& own) {
    return std::find(names.begin(), names.end(), own) != names.end();
  });
}

}  // namespace muster::control
