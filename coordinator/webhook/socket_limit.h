// Ends the use of a socket at a deadline, or at once: whoever waits for the socket gets an error.
// For a library that only has timeouts for each read and write, and keeps all that it reads.
#ifndef MUSTER_COORDINATOR_WEBHOOK_SOCKET_LIMIT_H_
#define MUSTER_COORDINATOR_WEBHOOK_SOCKET_LIMIT_H_

#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"

namespace muster::webhook {

// Thread-safe.
class SocketLimit {
 public:
  static constexpr uint64_t kMostBytes = 1 << 20;

  SocketLimit();
  // Joins its thread.
  ~SocketLimit();

  // Begins the use of a socket for at most `limit`, and for receiving not much more than
  // kMostBytes. False: it was aborted.
  bool Begin(absl::Duration limit);
  // The socket that is used, before it is connected. Keeps a descriptor of its own for it, because
  // the library may close its descriptor at any time.
  void Use(int socket);
  // The use is over. True: this object ended it.
  bool End();
  // Ends this use and all later ones.
  void Abort();
  bool aborted() const;

 private:
  enum class State { kIdle, kUsed, kOver };
  void Loop();
  bool ReceivedTooMuch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShutDown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  SteadyCondition changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  // Grows with each Begin.
  uint64_t uses_ ABSL_GUARDED_BY(mutex_) = 0;
  int socket_ ABSL_GUARDED_BY(mutex_) = -1;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace muster::webhook

#endif  // MUSTER_COORDINATOR_WEBHOOK_SOCKET_LIMIT_H_
