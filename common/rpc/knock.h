// Whether anybody listens at an address: the difference between a program that is down and a
// network that is cut.
#ifndef MUSTER_COMMON_RPC_KNOCK_H_
#define MUSTER_COMMON_RPC_KNOCK_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace muster {

// A TCP connection to host:port is tried. True: the host itself answered that nobody listens there,
// at each of its addresses. False: somebody listens, no answer came within `timeout`, or nothing is
// known (no such name, no route).
bool IsRefused(const std::string& address, absl::Duration timeout);

// Knocks again and again while it is told to, on a thread of its own: a name that is looked up may
// take long. Thread-safe.
class Knocker {
 public:
  // on_refused: called on that thread with the SteadyNow() of the moment before the attempt.
  Knocker(std::string address, std::function<void(absl::Time begun)> on_refused);
  ~Knocker();

  // Knocks now, and then once per interval.
  void Begin(absl::Duration interval);
  void Stop();

 private:
  void Run();

  const std::string address_;
  const std::function<void(absl::Time)> on_refused_;
  std::mutex mutex_;
  // Of the standard library: its waits are on the steady clock.
  std::condition_variable changed_;
  // Zero: does not knock.
  absl::Duration interval_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_KNOCK_H_
