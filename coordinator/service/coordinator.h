// A whole coordinator in one object: engine, services, server.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/rpc.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/timing.h"
#include "coordinator/store/store.h"

namespace muster::service {

struct CoordinatorOptions {
  ServerOptions server;
  membership::Timing timing;
  jobs::EndTimeouts patience;
  // The store's data is damaged, and the coordinator answers only UNAVAILABLE from now on: the
  // process should end. Runs on a thread of the coordinator; must not block.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
};

// Thread-safe.
class Coordinator {
 public:
  // Continues from what is stored, and listens. `store` outlives the coordinator. Errors: the
  // store's and the server's.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            store::Store* store);
  // Stops: ends all streams with UNAVAILABLE, answers what has arrived, and stores it.
  virtual ~Coordinator() = default;

  // The node's agent will be stopped on purpose: the jobs that run there save a checkpoint at their
  // next step boundary, end there, and continue later or on other nodes. This does not count as a
  // failure.
  virtual void Drain(const std::string& node) = 0;
  // Waits until no process is left on the drained node, but no longer than `timeout`. True if none
  // is left, or if the store has failed.
  virtual bool AwaitDrained(absl::Duration timeout) = 0;
  // A number that changes while jobs on the drained node make progress.
  virtual uint64_t DrainActivity() = 0;
  // Tells the processes that are left on the drained node to end now.
  virtual void InterruptDrained() = 0;

  // host:port
  virtual const std::string& address() const = 0;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
