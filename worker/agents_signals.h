// The signals of a worker: only its agent stops it in order.
//
// A scheduler, a service manager or a container's stop sends SIGTERM to all processes of a job. The
// worker ignores signals that do not come from its agent, so that the agent can let it save a
// checkpoint first. The death of the agent ends the worker anyway (PR_SET_PDEATHSIG).
#ifndef MUSTER_WORKER_AGENTS_SIGNALS_H_
#define MUSTER_WORKER_AGENTS_SIGNALS_H_

#include <sys/types.h>

namespace muster {

// Makes SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 have their usual effect only if the process
// `agent` sent them. Unblocks these signals. Call it once.
void ObeySignalsOfAgentOnly(pid_t agent);

}  // namespace muster

#endif  // MUSTER_WORKER_AGENTS_SIGNALS_H_
