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
  // What is stored is damaged, and the coordinator only answers UNAVAILABLE from now on: the
  // process should end. Runs on a thread of the coordinator; must not block.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
};

// Thread-safe.
class Coordinator {
 public:
  // Carries on from what is stored, and listens. `store` outlives the coordinator. Errors: the
  // store's and the server's.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            store::Store* store);
  // Stops: ends all streams with UNAVAILABLE, answers what has arrived, and stores it.
  virtual ~Coordinator() = default;

  // The node's agent is about to be stopped on purpose: the jobs that run there save a checkpoint
  // at their next step boundary, end there, and go on elsewhere or later, which counts as no
  // failure.
  virtual void Drain(const std::string& node) = 0;
  // Of a node that is drained: waits until no process is left there, but no longer than `timeout`.
  // Whether that has come, or the store has failed.
  virtual bool AwaitDrained(absl::Duration timeout) = 0;
  // Of a node that is drained: changes while something moves there.
  virtual uint64_t DrainActivity() = 0;
  // What is left on a node that is drained is told to end now.
  virtual void InterruptDrained() = 0;

  // host:port
  virtual const std::string& address() const = 0;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
