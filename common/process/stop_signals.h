// The signals that end a program, from schedulers, service managers, containers and terminals.
//
// SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and the first SIGINT ask for an end in order. Repeats of the
// first four have the same meaning. A reason for repeats: a scheduler sends a signal to every
// process of a job, and some processes pass the signal on. SIGQUIT, and a second SIGINT, ask for an
// end at once.
#ifndef MUSTER_COMMON_PROCESS_STOP_SIGNALS_H_
#define MUSTER_COMMON_PROCESS_STOP_SIGNALS_H_

#include <signal.h>

#include <vector>

namespace muster::process {

// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2: the job should continue later.
const std::vector<int>& PreemptionSignals();

// Blocks all signals above in the calling thread and returns them, for sigwait. An ignored signal
// other than SIGTERM and SIGINT stays ignored (nohup). Call before any other thread is started.
sigset_t BlockStopSignals();

enum class StopOrder {
  // The end was requested already.
  kNone,
  kInOrder,
  kAtOnce,
};

// The meaning of the signals of one process, in order. Pure; not thread-safe.
class StopSequence {
 public:
  StopOrder Take(int signal);

 private:
  bool asked_ = false;
  bool interrupted_ = false;
};

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_STOP_SIGNALS_H_
