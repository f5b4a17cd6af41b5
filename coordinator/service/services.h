// The services of muster.v1 over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_SERVICES_H_
#define MUSTER_COORDINATOR_SERVICE_SERVICES_H_

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "common/rpc/caller_processor.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "coordinator/service/peer_stream.h"
#include "coordinator/service/secrets.h"
#include "coordinator/service/transfers.h"
#include "coordinator/store/store.h"

namespace muster::service {

// The objects that the services work with. All of them outlive the server of the services.
struct ServiceParts {
  Engine* engine = nullptr;
  store::Store* store = nullptr;
  // The streams that follow jobs, their logs and their steps.
  Followers* jobs = nullptr;
  Followers* logs = nullptr;
  Followers* steps = nullptr;
  // The streams of all agents and workers.
  PeerStreams* peers = nullptr;
  Transfers* transfers = nullptr;
  const Secrets* secrets = nullptr;
  // The coordinator's timing.
  membership::Timing timing;
  // Decides who may make which call, also while a stream is open.
  Authorizer authorize;
};

// Make one service each. The services are thread-safe.
std::unique_ptr<grpc::Service> NewJobService(const ServiceParts& parts);
std::unique_ptr<grpc::Service> NewControlService(const ServiceParts& parts);
std::unique_ptr<grpc::Service> NewOperationService(const ServiceParts& parts);
std::unique_ptr<grpc::Service> NewClusterService(const ServiceParts& parts);
std::unique_ptr<grpc::Service> NewAgentService(const ServiceParts& parts);
std::unique_ptr<grpc::Service> NewWorkerService(const ServiceParts& parts);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_SERVICES_H_
