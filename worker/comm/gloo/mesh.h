// Point-to-point messages between all pairs of ranks. Only this code uses c10d::ProcessGroupGloo.
//
// Sender and receiver name a message by the same tag below 2^30; the receiver posts a buffer of the
// same size. Posting never blocks and uses no other thread; several messages may be in flight. A
// dead peer fails all transfers with that peer at once. A silent living peer fails nothing:
// CancelFrom ends the wait. Thread-safe.
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

// One message in flight. Destroying a Transfer, done or not, gives the buffer back to the caller:
// nothing reads or writes the buffer afterwards.
class Transfer {
 public:
  virtual ~Transfer() = default;

  virtual int peer() const = 0;

  // Waits for the end of the message; must be called once. Errors: UNAVAILABLE "rank 2 is gone:
  // ...", CANCELLED after CancelFrom. Reaching `limit` breaks all connections, so only the last
  // message of a mesh may have a limit.
  virtual absl::Status Wait(std::chrono::milliseconds limit = std::chrono::hours(24 * 365)) = 0;
};

class Mesh {
 public:
  virtual ~Mesh() = default;  // after all its transfers

  using MaybeTransfer = absl::StatusOr<std::unique_ptr<Transfer>>;
  virtual MaybeTransfer Send(const void* data, size_t bytes, int peer, uint32_t tag) = 0;
  virtual MaybeTransfer Receive(void* data, size_t bytes, int peer, uint32_t tag) = 0;

  // Ends all waits for messages with this tag or a higher one, now and later, with CANCELLED. No
  // message with such a tag can be posted afterwards.
  virtual void CancelFrom(uint32_t tag) = 0;
};

// Blocks until all ranks are connected.
absl::StatusOr<std::unique_ptr<Mesh>> CreateMesh(const GlooOptions& options,
                                                 RendezvousStore& store);

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_MESH_H_
