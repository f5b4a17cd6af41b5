#include "worker/agents_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "common/process/stop_signals.h"

namespace muster {
namespace {

std::atomic<pid_t> agent_process = 0;
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler reads it");

void Handle(int signal, siginfo_t* info, void*) {
  if (info->si_code != SI_USER || info->si_pid != agent_process) return;
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal, &usual, nullptr);
  // The signal is blocked until this function returns.
  raise(signal);
}

}  // namespace

void ObeySignalsOfAgentOnly(pid_t agent) {
  agent_process = agent;
  struct sigaction action = {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigset_t handled;
  sigemptyset(&handled);
  sigaddset(&handled, SIGINT);
  for (const int signal : process::PreemptionSignals()) sigaddset(&handled, signal);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&handled, signal) == 1) sigaction(signal, &action, nullptr);
  }
  pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
}

}  // namespace muster
