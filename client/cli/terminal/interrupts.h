// Turns the signals that end a program (common/process/stop_signals.h), for example Ctrl-C, into
// ordinary calls on a separate thread.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_INTERRUPTS_H_
#define MUSTER_CLIENT_CLI_TERMINAL_INTERRUPTS_H_

#include <signal.h>

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::cli {

// Passes signals to a listener. Thread-safe.
class Interrupts {
 public:
  // `otherwise` is called if there is no listener. By default the process ends: with exit code 130
  // after SIGINT and SIGTERM, else as a program does without a handler for the signal.
  explicit Interrupts(std::function<void(int signal)> otherwise = EndProcess);

  // Listens for the lifetime of the object. There may be one listener at a time.
  class Listener {
   public:
    // `signalled` gets the number of each signal. Called on another thread: never twice at the same
    // time, and never after the destructor has returned.
    Listener(Interrupts* interrupts, std::function<void(int signal)> signalled);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

   private:
    Interrupts* const interrupts_;
  };

  // Passes a signal that has come to the listener.
  void Deliver(int signal = SIGINT);

 private:
  static void EndProcess(int signal);

  const std::function<void(int)> otherwise_;
  absl::Mutex mutex_;
  std::function<void(int)> listener_ ABSL_GUARDED_BY(mutex_);
  // Whether a call of the listener is running.
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

// Turns the process's signals into deliveries, from its construction to the end of the process.
// Make one at the start of main, before any other thread: threads inherit the blocked signals.
class SignalThread {
 public:
  // `interrupts` must live as long as the process.
  explicit SignalThread(Interrupts* interrupts);
};

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_INTERRUPTS_H_
