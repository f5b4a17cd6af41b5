// muster.v1.ClusterService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_CLUSTER_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_CLUSTER_SERVICE_H_

#include <atomic>
#include <utility>

#include "common/rpc/caller_processor.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/backup.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/request.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"

namespace muster::service {

// The engine and the store outlive the server that this is registered with. Thread-safe.
class ClusterService final : public Admitting<v1::ClusterService::CallbackService> {
 public:
  // `authorize`: who may make which call.
  ClusterService(Engine* engine, store::Store* store, Authorizer authorize)
      : Admitting(std::move(authorize)), engine_(engine), store_(store) {
    Admits("ListNodes", &ClusterService::ListNodes);
    Admits("DrainNode", &ClusterService::DrainNode);
    Admits("CordonNode", &ClusterService::CordonNode);
    Admits("UncordonNode", &ClusterService::UncordonNode);
    Admits("ForgetNode", &ClusterService::ForgetNode);
    Admits("Backup", &ClusterService::Backup);
  }

  grpc::ServerUnaryReactor* ForgetNode(grpc::CallbackServerContext* context,
                                       const v1::ForgetNodeRequest* request,
                                       v1::ForgetNodeResponse* response) override;
  grpc::ServerUnaryReactor* ListNodes(grpc::CallbackServerContext* context,
                                      const v1::ListNodesRequest* request,
                                      v1::ListNodesResponse* response) override;
  grpc::ServerWriteReactor<v1::BackupChunk>* Backup(grpc::CallbackServerContext* context,
                                                    const v1::BackupRequest*) override {
    return StartBackup(RequesterOf(context), store_, &backup_running_);
  }

  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::Node* response) override;
  grpc::ServerUnaryReactor* CordonNode(grpc::CallbackServerContext* context,
                                       const v1::CordonNodeRequest* request,
                                       v1::Node* response) override;
  grpc::ServerUnaryReactor* UncordonNode(grpc::CallbackServerContext* context,
                                         const v1::UncordonNodeRequest* request,
                                         v1::Node* response) override;

 private:
  Engine* const engine_;
  store::Store* const store_;
  std::atomic<bool> backup_running_ = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CLUSTER_SERVICE_H_
