// Whether a coordinator does its work, for programs that watch it. Thread-safe.
#ifndef MUSTER_COORDINATOR_SERVICE_HEALTH_H_
#define MUSTER_COORDINATOR_SERVICE_HEALTH_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace muster::service {

class Health {
 public:
  // What keeps clients from being served; OK: nothing.
  void SetReady(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    ready_ = status;
  }
  absl::Status ready() const {
    absl::MutexLock lock(&mutex_);
    return ready_;
  }
  // The thread that changes the coordinator's state did something (SteadyNow).
  void Woke(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    woke_ = now;
  }
  // When it last did; infinite past: never yet.
  absl::Time woke() const {
    absl::MutexLock lock(&mutex_);
    return woke_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status ready_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("musterd is starting");
  absl::Time woke_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HEALTH_H_
