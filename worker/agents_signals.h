// Signals of a worker: only its agent stops it in order.
//
// Whoever ends a whole job sends SIGTERM to all of its processes: a scheduler, a service manager, a
// container's stop. The worker leaves the signal to its agent, which lets it save a checkpoint
// first. The death of the agent ends the worker anyway (PR_SET_PDEATHSIG).
#ifndef MUSTER_WORKER_AGENTS_SIGNALS_H_
#define MUSTER_WORKER_AGENTS_SIGNALS_H_

#include <sys/types.h>

namespace muster {

// From now on SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 have an effect only if the process
// `agent` sent them: the usual one. Lets those signals in that were blocked until now. To be called
// once.
void ObeySignalsOfAgentOnly(pid_t agent);

}  // namespace muster

#endif  // MUSTER_WORKER_AGENTS_SIGNALS_H_
