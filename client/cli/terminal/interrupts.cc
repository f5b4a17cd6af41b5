#include "client/cli/terminal/interrupts.h"

#include <unistd.h>

#include <utility>

#include "client/cli/terminal/exit_code.h"
#include "common/process/stop_signals.h"

namespace muster::cli {

void Interrupts::EndProcess(int signal) {
  if (signal != SIGINT && signal != SIGTERM) {
    ::signal(signal, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(signal);
  }
  _exit(kInterrupted);
}

Interrupts::Interrupts(std::function<void(int)> otherwise) : otherwise_(std::move(otherwise)) {}

void Interrupts::Deliver(int signal) {
  std::function<void(int)> listener;
  {
    absl::MutexLock lock(&mutex_);
    listener = listener_;
    running_ = listener != nullptr;
  }
  if (!listener) return otherwise_(signal);
  listener(signal);
  absl::MutexLock lock(&mutex_);
  running_ = false;
}

Interrupts::Listener::Listener(Interrupts* interrupts, std::function<void(int)> signalled)
    : interrupts_(interrupts) {
  absl::MutexLock lock(&interrupts_->mutex_);
  interrupts_->listener_ = std::move(signalled);
}

Interrupts::Listener::~Listener() {
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(interrupts_->mutex_) {
    return !interrupts_->running_;
  };
  absl::MutexLock lock(&interrupts_->mutex_);
  interrupts_->listener_ = nullptr;
  interrupts_->mutex_.Await(absl::Condition(&idle));
}

SignalThread::SignalThread(Interrupts* interrupts) {
  const sigset_t signals = process::BlockStopSignals();
  std::thread([signals, interrupts] {
    while (true) {
      int signal = 0;
      if (sigwait(&signals, &signal) == 0) interrupts->Deliver(signal);
    }
  }).detach();
}

}  // namespace muster::cli
