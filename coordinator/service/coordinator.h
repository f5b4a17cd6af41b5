// A whole coordinator in one object: engine, services, server.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/rpc/rpc.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/cluster_service.h"
#include "coordinator/service/control_services.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "coordinator/service/job_service.h"
#include "coordinator/store/store.h"

namespace muster::service {

struct CoordinatorOptions {
  ServerOptions server;
  membership::Timing timing;
  jobs::Patience patience;
  // The store failed and the coordinator only answers UNAVAILABLE from now on: the process should
  // end. Runs on a thread of the coordinator; must not block.
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
  ~Coordinator();

  // Ends the node's processes before its agent is stopped on purpose, so that this counts as no
  // failure. Returns when they are gone, or after `timeout`.
  void Drain(const std::string& node, absl::Duration timeout);

  // host:port
  const std::string& address() const { return server_->address(); }

 private:
  Coordinator() = default;
  void Let(const cluster::Effect& effect);
  void CheckDrained();

  // ---- Of the engine's thread.
  Sessions sessions_;
  Followers jobs_;
  Followers logs_;
  Followers steps_;
  std::string draining_;
  std::shared_ptr<absl::Notification> drained_;

  SessionIds ids_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<JobService> job_service_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<AgentService> agent_service_;
  std::unique_ptr<WorkerService> worker_service_;
  std::unique_ptr<Server> server_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
