// Turns Ctrl-C (SIGINT) and SIGTERM into ordinary calls on a separate thread.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_INTERRUPTS_H_
#define MUSTER_CLIENT_CLI_TERMINAL_INTERRUPTS_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::cli {

// Passes interrupts to a listener. Thread-safe.
class Interrupts {
 public:
  // `otherwise` is called if there is no listener; by default the process ends with exit code 130.
  explicit Interrupts(std::function<void()> otherwise = EndProcess);

  // Listens for the lifetime of the object. There may be one listener at a time.
  class Listener {
   public:
    // `interrupted` gets 1 with the first interrupt, then 2, and so on. Called on another thread,
    // never two calls at once, and never after the destructor has returned.
    Listener(Interrupts* interrupts, std::function<void(int)> interrupted);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    Interrupts* const interrupts_;
  };

  // An interrupt has come.
  void Deliver();

 private:
  static void EndProcess();

  const std::function<void()> otherwise_;
  absl::Mutex mutex_;
  std::function<void(int)> listener_ ABSL_GUARDED_BY(mutex_);
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  // A call of the listener is running.
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

// Turns the process's SIGINT and SIGTERM into deliveries, from its construction to the end of the
// process. To be made once, at the start of main, before there is any other thread (they inherit
// the blocked signals).
class SignalThread {
 public:
  // `interrupts` must live as long as the process.
  explicit SignalThread(Interrupts* interrupts);
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_INTERRUPTS_H_
