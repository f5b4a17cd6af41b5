// Whether a process listens at an address. This distinguishes a program that is down from a network
// that is cut.
#ifndef MUSTER_COMMON_RPC_KNOCK_H_
#define MUSTER_COMMON_RPC_KNOCK_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"

namespace muster {

// Tries a connection to an address as ToString(Address) writes it. True: the host itself answered,
// at each of its addresses, that no process listens there, or there is no such Unix socket. False:
// a process listens, no answer came within `timeout`, or it is not known (no such name, no route).
bool IsRefused(const std::string& address, absl::Duration timeout);

// While it is switched on, it repeats this check on a thread of its own, because the lookup of a
// name may take long. Thread-safe.
class Knocker {
 public:
  // on_refused: called on that thread with the SteadyNow() of the moment before the attempt.
  Knocker(std::string address, std::function<void(absl::Time begun)> on_refused);
  ~Knocker();

  // Checks now, and then once per interval.
  void Begin(absl::Duration interval);
  void Stop();

 private:
  void Run();
  bool IsClosing();

  const std::string address_;
  const std::function<void(absl::Time)> on_refused_;
  absl::Mutex mutex_;
  SteadyCondition changed_;
  // Zero: it is switched off.
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_KNOCK_H_
