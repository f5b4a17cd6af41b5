// How the ranks of a generation meet: rank 0 hosts a store and tells the coordinator where, the
// others hear of it from the coordinator; in the store they find each other for their
// communicators.
#ifndef MUSTER_WORKER_CONTROL_MEET_RANKS_H_
#define MUSTER_WORKER_CONTROL_MEET_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo/rendezvous.h"
#include "worker/control/control_stream.h"
#include "worker/train/failure.h"

namespace muster::control {

// The two process groups of a session, and the store in which their ranks met.
struct Communicators {
  std::unique_ptr<comm::RendezvousStore> store;
  std::unique_ptr<comm::Communicator> control;
  std::unique_ptr<comm::Communicator> gradients;
};

// Rank 0: hosts the store at the address that the welcome names, and reports where. Others: wait
// until they are told, and connect to it. Errors: those of comm/gloo/rendezvous.h;
// DEADLINE_EXCEEDED: not told within `timeout`.
absl::StatusOr<std::unique_ptr<comm::RendezvousStore>> OpenStore(ControlStream& stream,
                                                                 int64_t rank,
                                                                 absl::Duration timeout);

// Blocks until all ranks are connected. watched: as GlooOptions has it. Errors: those of
// comm/gloo/gloo_communicator.h.
absl::StatusOr<Communicators> ConnectRanks(const v1::WorkerWelcome& welcome, int64_t rank,
                                           absl::Duration timeout, std::function<bool()> watched,
                                           std::unique_ptr<comm::RendezvousStore> store);

// Whose fault it is that a rank could not meet the others. Hosting the store (rank 0's OpenStore)
// depends on nobody else; all other steps depend on the other ranks.
train::FailureKind KindOfMeetingFailure(const absl::Status& error, bool hosting);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_MEET_RANKS_H_
