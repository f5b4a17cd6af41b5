// A thread that carries out one part of each operation, in the order in which it is given them.
#ifndef MUSTER_WORKER_COMM_GLOO_OPERATION_THREAD_H_
#define MUSTER_WORKER_COMM_GLOO_OPERATION_THREAD_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/gloo/operations.h"

namespace muster::comm {

// Thread-safe.
class OperationThread {
 public:
  // part: called in the thread.
  explicit OperationThread(std::function<void(std::shared_ptr<Operation>)> part);
  // Stops.
  ~OperationThread();

  void Push(std::shared_ptr<Operation> operation);
  // Returns when the thread has carried out all that it was given.
  void Stop();

  // Called in the thread: waits for the transfers in order, up to the first error.
  absl::Status WaitFor(const std::vector<std::unique_ptr<Transfer>>& transfers);
  // The peer for which WaitFor waits now.
  std::optional<int> waits_for() const;

 private:
  void Run();
  // Waits for an operation; null once there is none and Stop was called.
  std::shared_ptr<Operation> Next();

  const std::function<void(std::shared_ptr<Operation>)> part_;
  std::atomic<int> waits_for_;
  absl::Mutex mutex_;
  std::deque<std::shared_ptr<Operation>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_OPERATION_THREAD_H_
