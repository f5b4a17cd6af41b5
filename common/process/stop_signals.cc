#include "common/process/stop_signals.h"

#include <utility>

namespace muster::process {
namespace {

bool Ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

const std::vector<int>& PreemptionSignals() {
  static const auto& signals = *new std::vector<int>{SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  return signals;
}

sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (!Ignored(SIGQUIT)) sigaddset(&signals, SIGQUIT);
  for (const int signal : PreemptionSignals()) {
    if (!Ignored(signal)) sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

StopOrder StopSequence::Take(int signal) {
  const bool again = std::exchange(asked_, true);
  if (signal == SIGQUIT) return StopOrder::kAtOnce;
  if (signal == SIGINT && std::exchange(interrupted_, true)) return StopOrder::kAtOnce;
  return again ? StopOrder::kNone : StopOrder::kInOrder;
}

}  // namespace muster::process
