// The operations of one communicator: which operations are in flight, what has ended them, and the
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

// One collective in flight. Three threads use it in turn: the issuing thread, the reducing thread
// (reductions only), and the finishing thread. A thread uses an operation from its own queue.
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
  // Gives the operation its number. Returns an error if the communicator has failed; the operation
  // is then not in flight.
  absl::Status Begin(Operation& operation);
  // UNAVAILABLE if a peer has left without taking part in the operation with this number.
  absl::Status CheckPeers(int64_t number);
  // Ends an operation that is done, or a broken operation after the communicator has failed. Keeps
  // a broken operation until this object is destroyed, because Gloo cannot cancel a message that is
  // partly sent. Such a message blocks the connection, also for the message about the failure.
  void End(std::shared_ptr<Operation> operation);

  // Returns the result of the operation when it is done, or nullopt after `limit`.
  std::optional<absl::Status> Await(const Operation& operation, absl::Duration limit);

  // Makes `cause` the end of all operations. Returns false, and does nothing, if there was an
  // earlier cause or after Close.
  bool Fail(const absl::Status& cause);
  // Notes that a peer takes part only in its first `operations` operations. UNAVAILABLE if an
  // operation beyond these is in flight.
  absl::Status PeerLeft(int peer, int64_t operations);
  // Returns the number of operations, if nothing has failed and nothing is in flight; no later
  // failure counts. Otherwise returns nullopt.
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

// A thread that carries out one part of each operation, in the order of the calls of Push.
// Thread-safe.
class OperationThread {
 public:
  // part: called in this thread for each operation.
  explicit OperationThread(std::function<void(std::shared_ptr<Operation>)> part);
  // Calls Stop.
  ~OperationThread();

  void Push(std::shared_ptr<Operation> operation);
  // Returns when the thread has carried out all operations in its queue.
  void Stop();

  // Waits for the transfers in order, up to the first error. Called in this thread.
  absl::Status WaitFor(const std::vector<std::unique_ptr<Transfer>>& transfers);
  // The peer that WaitFor waits for at present.
  std::optional<int> waits_for() const;

 private:
  void Run();
  // Waits for an operation. Returns null when the queue is empty and Stop was called.
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
