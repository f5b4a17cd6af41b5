// The checkpoints that rank 0 removes by itself while the coordinator cannot be reached. They are
// checkpoints of this generation only. The newest checkpoints, as many as the job keeps, and the
// best one stay. Checkpoints of earlier generations stay until the coordinator can be reached
// again. Pure; not thread-safe.
#ifndef MUSTER_WORKER_CONTROL_OWN_CHECKPOINTS_H_
#define MUSTER_WORKER_CONTROL_OWN_CHECKPOINTS_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace muster::control {

class OwnCheckpoints {
 public:
  explicit OwnCheckpoints(size_t keep) : keep_(keep) {}

  // Adds a checkpoint that this generation has written; kBest: it becomes the best one. Returns the
  // checkpoints to remove: the surplus ones if the coordinator is `away`, otherwise none, because
  // the coordinator names them.
  enum class Kind { kPlain, kBest };
  std::vector<std::string> Written(const std::string& name, Kind kind, bool away) {
    std::vector<std::string> surplus;
    if (kind == Kind::kBest && name != best_) {
      const bool among_newest = std::find(names_.begin(), names_.end(), best_) != names_.end();
      if (!best_.empty() && !among_newest) surplus.push_back(best_);
      best_ = name;
    }
    // A repeated save of a step has the same name.
    std::erase(names_, name);
    names_.push_back(name);
    while (names_.size() > keep_) {
      if (names_.front() != best_) surplus.push_back(names_.front());
      names_.pop_front();
    }
    if (!away) surplus.clear();
    return surplus;
  }

 private:
  const size_t keep_;
  // The newest checkpoints, oldest first.
  std::deque<std::string> names_;
  std::string best_;  // empty: none
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_OWN_CHECKPOINTS_H_
