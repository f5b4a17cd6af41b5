#include "client/cli/terminal/interrupts.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "client/cli/terminal/exit_code.h"

namespace muster::cli {

void Interrupts::EndProcess() { _exit(kInterrupted); }

Interrupts::Interrupts(std::function<void()> otherwise) : otherwise_(std::move(otherwise)) {}

void Interrupts::Deliver() {
  std::function<void(int)> listener;
  int count = 0;
  {
    absl::MutexLock lock(&mutex_);
    listener = listener_;
    count = ++count_;
    running_ = listener != nullptr;
  }
  if (!listener) return otherwise_();
  listener(count);
  absl::MutexLock lock(&mutex_);
  running_ = false;
}

Interrupts::Listener::Listener(Interrupts* interrupts, std::function<void(int)> interrupted)
    : interrupts_(interrupts) {
  absl::MutexLock lock(&interrupts_->mutex_);
  interrupts_->listener_ = std::move(interrupted);
  interrupts_->count_ = 0;
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
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, interrupts] {
    while (true) {
      int signal = 0;
      if (sigwait(&signals, &signal) == 0) interrupts->Deliver();
    }
  }).detach();
}

}  // namespace muster::cli
