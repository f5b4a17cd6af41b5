// Waits for state that an absl::Mutex guards, for a time on the steady clock.
//
// Abseil's own waits with a timeout (Mutex::AwaitWithTimeout, CondVar::WaitWithTimeout,
// Notification::WaitForNotificationWithTimeout, SleepFor) turn the time into a date in Debian 12's
// version: when somebody sets the system's date back by an hour, they last an hour longer. Waits
// without a timeout are right in Abseil, too.
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
  // After each change of what is waited for, with or without the mutex.
  void Changed() { changed_.notify_all(); }

  // With `mutex` held, which it gives up meanwhile: until holds(), which is asked with the mutex
  // held, at most `timeout` (infinite: for good). Whether it holds.
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
  // What can be added to any time without an overflow.
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
