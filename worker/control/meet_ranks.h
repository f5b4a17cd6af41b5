// The meeting of the ranks of a generation. Rank 0 hosts a store and reports its address to the
// coordinator, which sends the address to the other ranks. The ranks connect their communicators
// through the store.
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
#include "worker/control/reach.h"
#include "worker/train/ranks/failure.h"

namespace muster::control {

// The process groups of a session, and the store through which their ranks were connected.
struct Communicators {
  std::unique_ptr<comm::RendezvousStore> store;
  std::unique_ptr<comm::Communicator> control;
  std::unique_ptr<comm::Communicator> gradients;
  // Null if the job's strategy gathers no parameters while gradients are reduced.
  std::unique_ptr<comm::Communicator> parameters;
  std::unique_ptr<comm::Communicator> files;
};

// Opens the store. Rank 0 hosts the store at the host that the welcome names, and reports its
// address. The other ranks wait for this address, and connect. The heartbeats report an address at
// which nothing answers. Errors: those of comm/gloo/rendezvous.h and of AwaitReachable;
// DEADLINE_EXCEEDED: the address did not come within `timeout`.
absl::StatusOr<std::unique_ptr<comm::RendezvousStore>> OpenStore(ControlStream& stream,
                                                                 int64_t rank,
                                                                 absl::Duration timeout);

// Checks, before ConnectRanks, that this rank can connect with the others. Blocks until all ranks
// have made this call. Keep the result until ConnectRanks returns, because other ranks may still
// connect to it. Errors: those of reach.h, and of the store.
absl::StatusOr<std::unique_ptr<ReachListener>> ReachRanks(ControlStream& stream, int64_t rank,
                                                          absl::Duration timeout,
                                                          comm::RendezvousStore& store);

// Blocks until all ranks are connected. watched: see GlooOptions. Errors: those of
// comm/gloo/gloo_communicator.h.
absl::StatusOr<Communicators> ConnectRanks(const v1::WorkerWelcome& welcome, int64_t rank,
                                           absl::Duration timeout, std::function<bool()> watched,
                                           std::unique_ptr<comm::RendezvousStore> store);

// Returns which side is at fault if a rank could not connect with the others. Hosting the store
// (rank 0's OpenStore) depends on no other rank. All other steps depend on the other ranks, except
// errors that are found before any connection (FAILED_PRECONDITION).
train::FailureKind KindOfMeetingFailure(const absl::Status& error, bool hosting);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_MEET_RANKS_H_
