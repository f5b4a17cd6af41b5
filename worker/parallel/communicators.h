// The communicators over which a strategy exchanges tensors.
#ifndef MUSTER_WORKER_PARALLEL_COMMUNICATORS_H_
#define MUSTER_WORKER_PARALLEL_COMMUNICATORS_H_

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace muster::parallel {

// Both have the same ranks, outlive the strategy, and are used for nothing else meanwhile.
struct Communicators {
  // Gradients, the sums over them, buffers, and what moves when a plan changes.
  comm::Communicator* gradients = nullptr;
  // Parameters that are gathered while gradients are reduced. A communicator carries out its
  // operations one after the other, so with one of its own such a gather does not wait until the
  // reductions before it are done. May be the same as `gradients`.
  comm::Communicator* parameters = nullptr;

  Communicators(comm::Communicator* of_gradients, comm::Communicator* of_parameters)
      : gradients(of_gradients), parameters(of_parameters) {}
  // What ended one of them, if it was found after the Wait of the operation that failed; else OK.
  absl::Status failure() const {
    const absl::Status failed = gradients->failure();
    return failed.ok() ? parameters->failure() : failed;
  }

  // One for everything.
  Communicators(comm::Communicator* one)  // NOLINT(google-explicit-constructor)
      : Communicators(one, one) {}
};

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_COMMUNICATORS_H_
