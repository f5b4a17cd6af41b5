// Communicator over Gloo's TCP transport (c10d::ProcessGroupGloo, its point-to-point half only).
//
// How the collectives, the failure watch and the threads work: docs/internals/collectives.md.
#ifndef MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/gloo_options.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {

// Blocks until all ranks are connected. DEADLINE_EXCEEDED or UNAVAILABLE: they were not in time.
// The store is not needed any more afterwards (but see rendezvous.h about rank 0's).
// Makes the process ignore SIGPIPE, unless it has set this signal itself: Gloo needs that.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options,
                                                                     RendezvousStore& store);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_
