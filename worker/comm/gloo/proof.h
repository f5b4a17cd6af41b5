// A check that the ranks at the other ends of a mesh are those of this generation.
//
// Gloo's listener accepts everybody who connects with the number of a connection, which can be
// guessed. So each rank sends a random number to each other rank, and gets back a MAC of the
// number. The MAC's key is the secret that only the ranks of this generation know. The MAC also
// covers the communicator's name, the sender and the receiver, so an answer is of no use elsewhere.
#ifndef MUSTER_WORKER_COMM_GLOO_PROOF_H_
#define MUSTER_WORKER_COMM_GLOO_PROOF_H_

#include "absl/status/status.h"
#include "worker/comm/gloo/gloo_options.h"
#include "worker/comm/gloo/mesh.h"

namespace muster::comm {

// Blocks until all other ranks have proved to this rank that they know the secret. Must be called
// once, before other uses of the mesh. UNAUTHENTICATED if a connected process does not know
// options.secret. Other errors: those of Transfer::Wait, with options.connect_timeout as the limit.
absl::Status ProveRanks(const GlooOptions& options, Mesh& mesh);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_PROOF_H_
