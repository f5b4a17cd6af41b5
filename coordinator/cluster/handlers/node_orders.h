// Orders of operators about nodes; orders.h has the orders to agents and workers. A repeat (same
// request id) changes nothing.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_NODE_ORDERS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_NODE_ORDERS_H_

#include "absl/status/status.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"

namespace muster::cluster {

// Errors: NOT_FOUND NODE_NOT_FOUND; and those of Requests.
// INVALID_ARGUMENT DEADLINE_INVALID.
absl::Status Handle(Turn& turn, const DrainNode& order);
absl::Status Handle(Turn& turn, const CordonNode& order);
absl::Status Handle(Turn& turn, const UncordonNode& order);
// FAILED_PRECONDITION NODE_ATTACHED.
absl::Status Handle(Turn& turn, const ForgetNode& order);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_NODE_ORDERS_H_
