// The operations of one communicator: which of them are in flight, and what has ended them.
#ifndef MUSTER_WORKER_COMM_GLOO_OPERATIONS_H_
#define MUSTER_WORKER_COMM_GLOO_OPERATIONS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "worker/comm/gloo/exchange.h"
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

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_OPERATIONS_H_
