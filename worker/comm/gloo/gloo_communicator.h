// Communicator over Gloo's TCP transport (c10d::ProcessGroupGloo, its point-to-point half only).
//
// How the collectives, the failure watch and the threads work: docs/collectives.md.
#ifndef MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_
#define MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  // Tells the communicators of one store apart: "roll_call", "gradients". The same on all ranks.
  std::string name;
  // Longest time that Work::Wait waits for peers that are alive, and that Create waits for all ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // The address of this machine that peers connect to.
  std::string hostname = "127.0.0.1";
};

// Blocks until all ranks are there. DEADLINE_EXCEEDED or UNAVAILABLE when they do not come.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGlooCommunicator(const GlooOptions& options,
                                                                     RendezvousStore& store);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_GLOO_COMMUNICATOR_H_
