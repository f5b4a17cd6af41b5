// Waits for state that an absl::Mutex guards, with a time on the steady clock.
//
// In Debian 12's version, Abseil's waits with a timeout convert the time to a date
// (Mutex::AwaitWithTimeout, CondVar::WaitWithTimeout, Notification::WaitForNotificationWithTimeout,
// SleepFor). If the system's date is set back by an hour, such a wait lasts an hour longer.
// Abseil's waits without a timeout do not have this problem.
#ifndef MUSTER_COMMON_STEADY_CONDITION_H_
#define MUSTER_COMMON_STEADY_CONDITION_H_

#include <algorithm>
#include <condition_variable>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace muster {

// Thread-safe.
class SteadyCondition {
 public:
  // Wakes waiting threads. Call after each change of the state, with or without the mutex held.
  void Changed() { changed_.notify_all(); }

  // Waits until holds() returns true, at most `timeout` (infinite: no limit); returns the last
  // result of holds(). The caller holds `mutex`. `mutex` is released during the wait, and held
  // during holds().
  template <typename Predicate>
  bool Await(absl::Mutex& mutex, absl::Duration timeout, Predicate holds) {
    Lockable lock{&mutex};
    if (timeout == absl::InfiniteDuration()) {
      changed_.wait(lock, holds);
      return true;
    }
    const absl::Duration wait = std::clamp(timeout, absl::ZeroDuration(), kLongest);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(wait), holds);
  }

 private:
  // A duration that can be added to any time without an overflow.
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 10);

  struct Lockable {
    absl::Mutex* mutex;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex->Unlock(); }
  };

  std::condition_variable_any changed_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_STEADY_CONDITION_H_
