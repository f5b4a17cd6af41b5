// Ends a blocking call from another thread.
#ifndef MUSTER_CLIENT_API_CANCELLATION_H_
#define MUSTER_CLIENT_API_CANCELLATION_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"

namespace grpc {
class ClientContext;
}

namespace muster::client {

// A cancelled object stays cancelled: running calls that use the object end with CANCELLED, and
// later calls end in this way at once. The object must outlive its calls. Thread-safe.
class Cancellation {
 public:
  void Cancel();
  bool cancelled() const;
  // Waits until the object is cancelled, at most `timeout`; returns whether it is cancelled.
  bool WaitFor(absl::Duration timeout) const;

  // Ties the calls of `context` to this object, for the life of the Scope. `cancellation` may be
  // null.
  class Scope {
   public:
    Scope(Cancellation* cancellation, grpc::ClientContext* context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation* const cancellation_;
  };

 private:
  mutable absl::Mutex mutex_;
  mutable SteadyCondition changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_CANCELLATION_H_
