// A queue of tasks that many threads post and one thread carries out.
#ifndef MUSTER_WORKER_AGENT_MAILBOX_H_
#define MUSTER_WORKER_AGENT_MAILBOX_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace muster::agent {

// Unbounded, first in first out. Thread-safe. Waits on the steady clock
// (common/steady/condition.h).
class Mailbox {
 public:
  using Task = std::function<void()>;

  void Post(Task task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    posted_.notify_one();
  }

  // Waits at most `timeout`, which is finite, for the next task; nullopt: none came.
  std::optional<Task> Take(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    posted_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return !tasks_.empty(); });
    if (tasks_.empty()) return std::nullopt;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Task> tasks_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_MAILBOX_H_
