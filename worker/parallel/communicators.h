// The communicators over which a strategy exchanges tensors.
#ifndef MUSTER_WORKER_PARALLEL_COMMUNICATORS_H_
#define MUSTER_WORKER_PARALLEL_COMMUNICATORS_H_

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace muster::parallel {

// Both communicators have the same ranks, outlive the strategy, and have no other users.
struct Communicators {
  // Exchanges gradients, sums over gradients, buffers, and values that move when a plan changes.
  comm::Communicator* gradients = nullptr;
  // Gathers parameters while gradients are reduced; may be the same as `gradients`. A communicator
  // carries out its operations one after the other. With a communicator of its own, such a gather
  // does not wait for earlier reductions.
  comm::Communicator* parameters = nullptr;

  Communicators(comm::Communicator* of_gradients, comm::Communicator* of_parameters)
      : gradients(of_gradients), parameters(of_parameters) {}
  // Returns the error that has ended a communicator, if it was found only after the Wait of the
  // failed operation. Otherwise OK.
  absl::Status failure() const {
    const absl::Status failed = gradients->failure();
    return failed.ok() ? parameters->failure() : failed;
  }

  // Uses the same communicator for everything.
  Communicators(comm::Communicator* one)  // NOLINT(google-explicit-constructor)
      : Communicators(one, one) {}
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_COMMUNICATORS_H_
