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

// Once cancelled, it stays cancelled: running calls that use it end with CANCELLED, and calls that
// begin later do so at once. Must outlive its calls. Thread-safe.
class Cancellation {
 public:
  void Cancel();
  bool cancelled() const;
  // Waits until it is cancelled, at most this long; returns whether it is.
  bool WaitFor(absl::Duration timeout) const;

  // Ties the calls of `context` to this, for the life of the Scope. `cancellation` may be null.
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
