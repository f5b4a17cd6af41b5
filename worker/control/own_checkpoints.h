// Which of its checkpoints rank 0 removes by itself, while the coordinator is away and cannot name
// them: of this generation only, and so many stay as the job keeps. Those of former generations
// stay until the coordinator is back. Pure; not thread-safe.
#ifndef MUSTER_WORKER_CONTROL_OWN_CHECKPOINTS_H_
#define MUSTER_WORKER_CONTROL_OWN_CHECKPOINTS_H_

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace muster::control {

class OwnCheckpoints {
 public:
  explicit OwnCheckpoints(size_t keep) : keep_(keep) {}

  // This generation has written one, of this name. What is to be removed: those beyond the kept
  // ones where the coordinator is away; where it is there, it names them.
  std::vector<std::string> Written(const std::string& name, bool away);

 private:
  const size_t keep_;
  // The newest, oldest first.
  std::deque<std::string> names_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_OWN_CHECKPOINTS_H_
