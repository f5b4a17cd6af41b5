// The input of the engine's thread: tasks, urgent tasks (Engine::Aside) and the result of a commit,
// from any thread. Thread-safe.
#ifndef MUSTER_COORDINATOR_SERVICE_ENGINE_INBOX_H_
#define MUSTER_COORDINATOR_SERVICE_ENGINE_INBOX_H_

#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "coordinator/cluster/cluster.h"

namespace muster::service {

// Returns UNAVAILABLE COORDINATOR_STOPPING.
absl::Status Stopping();

class EngineInbox {
 public:
  using Apply = std::function<void(cluster::Cluster&, absl::Time)>;
  using Done = std::function<void(const absl::Status&)>;
  // The kinds of tasks: from Engine::Post, Request, RequestRoom and Read.
  enum class Kind { kEvent, kRequest, kRoom, kRead };
  struct Task {
    Kind kind = Kind::kEvent;
    Apply apply;
    Done done;
  };
  // A heartbeat, or other work of Engine::Aside.
  struct AsideTask {
    Apply apply;
    absl::Time posted;
  };
  struct Contents {
    std::vector<Task> tasks;
    std::vector<AsideTask> aside;
    // The result of the commit that was in progress.
    std::optional<absl::Status> committed;
    bool stopping = false;
  };

  // Adds a task. A task that is posted after Stop() is answered at once.
  void Post(Task task);
  void Aside(AsideTask task);
  void Committed(absl::Status committed);
  void Stop();

  // Waits until there is something, at most `timeout`. After Stop(), only waits for the result of a
  // commit in progress, if there is one.
  Contents Take(absl::Duration timeout, bool commit_under_way);

 private:
  absl::Mutex mutex_;
  SteadyCondition changed_;
  Contents contents_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ENGINE_INBOX_H_
