#include "coordinator/service/engine_inbox.h"

#include <utility>

#include "coordinator/membership/refusal.h"

namespace muster::service {

absl::Status Stopping() {
  return Refuse(absl::StatusCode::kUnavailable, "COORDINATOR_STOPPING",
                "the coordinator is stopping");
}

void EngineInbox::Post(Task task) {
  {
    absl::MutexLock lock(&mutex_);
    if (!contents_.stopping) {
      contents_.tasks.push_back(std::move(task));
      changed_.Changed();
      return;
    }
  }
  if (task.done) task.done(Stopping());
}

void EngineInbox::Aside(AsideTask task) {
  absl::MutexLock lock(&mutex_);
  contents_.aside.push_back(std::move(task));
  changed_.Changed();
}

void EngineInbox::Committed(absl::Status committed) {
  absl::MutexLock lock(&mutex_);
  // The status is moved, so that the committer's thread keeps no reference to it.
  contents_.committed = std::move(committed);
  changed_.Changed();
}

void EngineInbox::Stop() {
  absl::MutexLock lock(&mutex_);
  contents_.stopping = true;
  changed_.Changed();
}

EngineInbox::Contents EngineInbox::Take(absl::Duration timeout, bool commit_under_way) {
  absl::MutexLock lock(&mutex_);
  if (!contents_.stopping) {
    changed_.Await(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return contents_.stopping || !contents_.tasks.empty() || !contents_.aside.empty() ||
             contents_.committed.has_value();
    });
  } else if (commit_under_way) {
    changed_.Await(
        mutex_, absl::InfiniteDuration(),
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return contents_.committed.has_value(); });
  }
  return std::exchange(contents_, {.stopping = contents_.stopping});
}

}  // namespace muster::service
