// Finds out whether a process listens at an address. The answer distinguishes a stopped program
// from a broken network.
#ifndef MUSTER_COMMON_RPC_CONNECTION_PROBE_H_
#define MUSTER_COMMON_RPC_CONNECTION_PROBE_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"

namespace muster {

// Tries a connection to an address in the form of ToString(Address). True: the host itself
// answered, at each of its addresses, that no process listens there, or there is no such Unix
// socket. False: a process listens, no answer came within `timeout`, or the state is not known (no
// such name, no route).
bool IsRefused(const std::string& address, absl::Duration timeout);

// Repeats this check while it is switched on. Has its own thread, because the lookup of a name may
// take long. Thread-safe.
class ConnectionProbe {
 public:
  // on_refused: called on the ConnectionProbe's thread with the SteadyNow() of the time before the
  // attempt.
  ConnectionProbe(std::string address, std::function<void(absl::Time begun)> on_refused);
  ~ConnectionProbe();

  // Checks at once, and then once per interval.
  void Begin(absl::Duration interval);
  void Stop();

 private:
  void Run();
  bool IsClosing();

  const std::string address_;
  const std::function<void(absl::Time)> on_refused_;
  absl::Mutex mutex_;
  SteadyCondition changed_;
  // The interval; zero while switched off.
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CONNECTION_PROBE_H_
