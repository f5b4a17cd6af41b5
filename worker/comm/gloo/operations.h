// The operations of one communicator: which of them are in flight, what has ended them, and the
// threads that carry them out.
#ifndef MUSTER_WORKER_COMM_GLOO_OPERATIONS_H_
#define MUSTER_WORKER_COMM_GLOO_OPERATIONS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "worker/comm/gloo/exchange.h"
#include "worker/comm/gloo/mesh.h"
#include "worker/comm/operation.h"

namespace muster::comm {

// One collective in flight. The thread in whose queue it is may use it: first the issuing thread,
// then (for a reduction) the reducing thread, then the finishing thread.
struct Operation {
  OperationSpec spec;
  int64_t number = 0;
  Exchange exchange;
  bool broken = false;  // some transfer failed or was never posted

  // Guarded by the mutex of Operations.
  bool done = false;
  absl::Status result;
};

// Thread-safe.
class Operations {
 public:
  // Gives the operation its number. An error: the communicator has failed, and the operation is not
  // in flight.
  absl::Status Begin(Operation& operation);
  // UNAVAILABLE: a peer has left without taking part in the operation with this number.
  absl::Status CheckPeers(int64_t number);
  // The operation is done, or it is broken and the communicator has failed. Keeps a broken one to
  // the end: Gloo cannot cancel a message that is partly sent; it would block the connection, also
  // for the message about the failure.
  void End(std::shared_ptr<Operation> operation);

  // The result of the operation once it is done; nullopt after `limit`.
  std::optional<absl::Status> Await(const Operation& operation, absl::Duration limit);

  // What has ended all operations, from now on; returns whether nothing had before. The first cause
  // stays, and none counts after Close.
  bool Fail(const absl::Status& cause);
  // A peer takes part in its first `operations` operations. UNAVAILABLE: more were begun.
  absl::Status PeerLeft(int peer, int64_t operations);
  // If nothing has failed and nothing is in flight: no failure counts from now on; returns the
  // number of operations. Otherwise nullopt.
  std::optional<int64_t> Close();

 private:
  absl::Mutex mutex_;
  SteadyCondition finished_;  // signalled when an operation is done
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int64_t> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::map<int, int64_t> left_after_ ABSL_GUARDED_BY(mutex_);  // peer -> its number of operations
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Operation>> broken_ ABSL_GUARDED_BY(mutex_);
};

// A thread that carries out one part of each operation, in the order in which it is given them.
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

#endif  // MUSTER_WORKER_COMM_GLOO_OPERATIONS_H_
