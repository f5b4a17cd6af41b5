// What musterd itself says: the time, which ends leases and waits; its own silence; and that it is
// being stopped.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_DAEMON_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_DAEMON_H_

#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"

namespace muster::cluster {

// Gives up processes that count as lost, ends processes that take too long to end, stops jobs whose
// time limit is reached, forgets old requests, and starts the jobs that fit.
void Handle(Turn& turn, const TimePassed& passed);
void Handle(Turn& turn, const Judge& judge);
void Handle(Turn& turn, const WasAway& away);
void Handle(Turn& turn, const StoreWasAway& away);
void Handle(Turn& turn, const LeaveNode& leave);
void Handle(Turn& turn, const InterruptNode& interrupt);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_DAEMON_H_
