// Work posted from many threads for one.
#ifndef MUSTER_WORKER_AGENT_MAILBOX_H_
#define MUSTER_WORKER_AGENT_MAILBOX_H_

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace muster::agent {

// Unbounded, first in first out. Thread-safe.
class Mailbox {
 public:
  using Task = std::function<void()>;

  void Post(Task task) {
    absl::MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
  }

  // Waits at most `timeout` for the next task; nullopt: none came.
  std::optional<Task> Take(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(
        absl::Condition(+[](std::deque<Task>* tasks) { return !tasks->empty(); }, &tasks_), timeout);
    if (tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_MAILBOX_H_
