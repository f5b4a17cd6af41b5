// Whether the ranks at the other ends of a mesh are those of this generation.
//
// Gloo's listener takes whoever connects with the number of a connection, which can be guessed. So
// each rank sends each other one a random number, and gets it back in a MAC with the secret that
// only the ranks of this generation know, the communicator's name, and who proves it to whom: an
// answer is of no use to anybody else.
#ifndef MUSTER_WORKER_COMM_GLOO_PROOF_H_
#define MUSTER_WORKER_COMM_GLOO_PROOF_H_

#include "absl/status/status.h"
#include "worker/comm/gloo/gloo_options.h"
#include "worker/comm/gloo/mesh.h"

namespace muster::comm {

// Blocks until all other ranks have proved themselves to this one. Called once, before the mesh is
// used. UNAUTHENTICATED: one that has connected does not know options.secret. Other errors: those
// of Transfer::Wait, with options.connect_timeout as the limit.
absl::Status ProveRanks(const GlooOptions& options, Mesh& mesh);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_PROOF_H_
