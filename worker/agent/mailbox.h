// A queue of tasks that many threads post and one thread carries out.
#ifndef MUSTER_WORKER_AGENT_MAILBOX_H_
#define MUSTER_WORKER_AGENT_MAILBOX_H_

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"

namespace muster::agent {

// Unbounded, first in first out. Thread-safe.
class Mailbox {
 public:
  using Task = std::function<void()>;

  void Post(Task task) {
    {
      absl::MutexLock lock(&mutex_);
      tasks_.push_back(std::move(task));
    }
    posted_.Changed();
  }

  // Waits at most `timeout`, which is finite, for the next task; nullopt: none came.
  std::optional<Task> Take(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    if (!posted_.Await(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return !tasks_.empty();
        })) {
      return std::nullopt;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  absl::Mutex mutex_;
  SteadyCondition posted_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_MAILBOX_H_
