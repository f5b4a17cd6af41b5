// Waits for a socket, which another thread can end.
#ifndef MUSTER_COORDINATOR_WEBHOOK_INTERRUPT_H_
#define MUSTER_COORDINATOR_WEBHOOK_INTERRUPT_H_

#include <atomic>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/process/fd.h"

namespace muster::webhook {

// Thread-safe.
class Interrupt {
 public:
  Interrupt();

  // Ends the waits that are under way, and all later ones at once.
  void Set();
  bool is_set() const { return set_; }

  // Waits until one of `events` of poll(2) can be done with the socket without blocking, or would
  // fail: the call that follows says which. Errors: CANCELLED: Set was called; DEADLINE_EXCEEDED:
  // the time `until` (SteadyNow) is there, also if the socket is ready; RESOURCE_EXHAUSTED: there
  // was no file descriptor for this object; UNAVAILABLE: poll(2) fails.
  absl::Status Await(int socket, short events, absl::Time until) const;

 private:
  const process::Fd event_;
  std::atomic<bool> set_ = false;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_INTERRUPT_H_
