// Point-to-point messages between all pairs of ranks: the only user of c10d::ProcessGroupGloo.
//
// Both sides name the message by a tag below 2^30; the receiver posts a buffer of the same size.
// Posting never blocks and uses no other thread; several messages may be in flight. A dead peer
// fails the transfers with it at once. A peer that is alive and silent fails nothing: CancelFrom
// ends the waiting. Threads: everything may be called from any thread.
//
// The classes are abstract so that this header includes nothing of c10d.
#ifndef MUSTER_WORKER_COMM_GLOO_MESH_H_
#define MUSTER_WORKER_COMM_GLOO_MESH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/comm/gloo/gloo_options.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {

// One message on its way. Destroying it, done or not, gives its buffer back to the caller: it is
// neither read nor written afterwards.
class Transfer {
 public:
  virtual ~Transfer() = default;

  virtual int peer() const = 0;

  // Errors: UNAVAILABLE "rank 2 is gone: ...", CANCELLED after CancelFrom. Call it once. If
  // `limit` is reached, all connections break: give a limit only for the last message of a mesh.
  virtual absl::Status Wait(std::chrono::milliseconds limit = std::chrono::hours(24 * 365)) = 0;
};

class Mesh {
 public:
  virtual ~Mesh() = default;  // after all its transfers

  using MaybeTransfer = absl::StatusOr<std::unique_ptr<Transfer>>;
  virtual MaybeTransfer Send(const void* data, size_t bytes, int peer, uint32_t tag) = 0;
  virtual MaybeTransfer Receive(void* data, size_t bytes, int peer, uint32_t tag) = 0;

  // For all messages with this tag or a higher one: ends all waiting, now and later, with
  // CANCELLED; nothing can be posted any more.
  virtual void CancelFrom(uint32_t tag) = 0;
};

// Blocks until all ranks are connected.
absl::StatusOr<std::unique_ptr<Mesh>> CreateMesh(const GlooOptions& options,
                                                 RendezvousStore& store);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_MESH_H_
