// The signals by which others end a program: schedulers, service managers, containers, terminals.
//
// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 ask for an end in order, and so does the first SIGINT. They
// mean the same however often they come: a scheduler sends a signal to every process of a job, and
// some of these processes pass it on. SIGQUIT, and a second SIGINT, ask for an end at once.
#ifndef MUSTER_COMMON_PROCESS_STOP_SIGNALS_H_
#define MUSTER_COMMON_PROCESS_STOP_SIGNALS_H_

#include <signal.h>

#include <vector>

namespace muster::process {

// SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2: the job should go on later.
const std::vector<int>& PreemptionSignals();

// Blocks all signals above in the calling thread and returns them, for sigwait. A signal other than
// SIGTERM and SIGINT that is ignored stays so (nohup). To be called before any other thread is
// started.
sigset_t BlockStopSignals();

enum class StopOrder {
  // It was asked for already.
  kNone,
  kInOrder,
  kAtOnce,
};

// What the signals of one process mean, one after another. Pure; not thread-safe.
class StopSequence {
 public:
  StopOrder Take(int signal);

 private:
  bool asked_ = false;
  bool interrupted_ = false;
};

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_STOP_SIGNALS_H_
