// Communicator over Gloo's TCP transport (c10d::ProcessGroupGloo, only point-to-point).
//
// docs/internals/collectives.md explains the collectives, the failure watch and the threads.
#ifndef MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/gloo_options.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {

// Blocks until all ranks are connected. DEADLINE_EXCEEDED or UNAVAILABLE if the ranks did not
// connect in time. The store is not needed after this call, except on rank 0 (see rendezvous.h).
// Makes the process ignore SIGPIPE, as Gloo needs, unless the process has set a handler.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options,
                                                                     RendezvousStore& store);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_
