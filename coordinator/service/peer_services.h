// muster.v1.AgentService and muster.v1.WorkerService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_PEER_SERVICES_H_
#define MUSTER_COORDINATOR_SERVICE_PEER_SERVICES_H_

#include <atomic>
#include <utility>

#include "common/rpc/caller_processor.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/secrets.h"
#include "coordinator/service/session.h"
#include "coordinator/service/transfers.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"

namespace muster::service {

// Numbers of the streams, across both services. Thread-safe.
class PeerStreamIds {
 public:
  cluster::PeerStreamId Next() { return ++last_; }

 private:
  std::atomic<cluster::PeerStreamId> last_ = 0;
};

// All that these are given outlives the server that they are registered with. `authorize`: whether
// a caller may still use a stream. Thread-safe.
class AgentService final
    : public v1::AgentService::WithRawCallbackMethod_Attach<
          v1::AgentService::WithCallbackMethod_SendFile<v1::AgentService::Service>> {
 public:
  AgentService(Engine* engine, PeerStreams* sessions, PeerStreamIds* ids, Transfers* transfers,
               const Secrets* secrets, Authorizer authorize)
      : engine_(engine),
        sessions_(sessions),
        ids_(ids),
        transfers_(transfers),
        secrets_(secrets),
        authorize_(std::move(authorize)) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::FilePiece>* SendFile(grpc::CallbackServerContext* context,
                                                   v1::SendFileResponse* response) override;

 private:
  Engine* const engine_;
  PeerStreams* const sessions_;
  PeerStreamIds* const ids_;
  Transfers* const transfers_;
  const Secrets* const secrets_;
  const Authorizer authorize_;
};

class WorkerService final
    : public v1::WorkerService::WithRawCallbackMethod_Attach<v1::WorkerService::Service> {
 public:
  WorkerService(Engine* engine, PeerStreams* sessions, PeerStreamIds* ids, const Secrets* secrets,
                Authorizer authorize)
      : engine_(engine),
        sessions_(sessions),
        ids_(ids),
        secrets_(secrets),
        authorize_(std::move(authorize)) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attach(
      grpc::CallbackServerContext* context) override;

 private:
  Engine* const engine_;
  PeerStreams* const sessions_;
  PeerStreamIds* const ids_;
  const Secrets* const secrets_;
  const Authorizer authorize_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_PEER_SERVICES_H_
