// Watches the worker's own lease on a separate thread. The reasons: a stopped agent cannot end its
// workers, and a rank that hangs in a collective does not look at a clock.
#ifndef MUSTER_WORKER_CONTROL_LEASE_KEEPER_H_
#define MUSTER_WORKER_CONTROL_LEASE_KEEPER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "common/steady/condition.h"
#include "common/steady/now.h"

namespace muster::control {

// Thread-safe. No callback runs under a lock.
class LeaseKeeper {
 public:
  struct Events {
    // Called when the lease is over, once, on the keeper's thread. It must not block before the
    // process has ended; even a log line may block, if the log is a full pipe.
    std::function<void(const absl::Status& why)> on_over;
    // Called when heartbeats are not answered although the stream is open, so that another
    // connection is tried. At most once per stream.
    std::function<void()> on_silent;
    // Set by tests.
    std::function<absl::Time()> clock = SteadyNow;
  };
  explicit LeaseKeeper(Events events);
  ~LeaseKeeper();

  // Arguments as in Lease. never_ends: silence does not end the lease (`when_cut_off: continue`).
  void Welcomed(const LeaseTerms& terms, absl::Time sent, bool never_ends);
  uint64_t Beat();
  void Acked(uint64_t sequence);
  void Broken();
  void Refused(absl::Time begun);

  // UNAVAILABLE: the lease is over, even if the thread has not noticed it yet. Costs a clock read.
  absl::Status StillMine() const;

 private:
  enum class News { kOver, kSilent, kClosing };

  void Watch();
  News AwaitNews();
  // Applies a change of lease_; called after each change.
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Events events_;
  absl::Mutex mutex_;
  SteadyCondition changed_;
  Lease lease_ ABSL_GUARDED_BY(mutex_);
  bool never_ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time told_silent_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // lease_.End() in nanoseconds.
  std::atomic<int64_t> end_ = INT64_MAX;
  std::thread thread_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_LEASE_KEEPER_H_
