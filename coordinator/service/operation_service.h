// muster.v1.OperationService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_OPERATION_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_OPERATION_SERVICE_H_

#include <utility>

#include "common/rpc/caller_processor.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "coordinator/service/session.h"
#include "coordinator/service/transfers.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::service {

// All of these outlive the server that this is registered with. Thread-safe.
class OperationService final : public Admitting<v1::OperationService::CallbackService> {
 public:
  // `authorize`: who may make which call.
  OperationService(Engine* engine, Followers* jobs, PeerStreams* peers, Transfers* transfers,
                   Authorizer authorize)
      : Admitting(std::move(authorize)),
        engine_(engine),
        jobs_(jobs),
        peers_(peers),
        transfers_(transfers) {
    Admits("Get", &OperationService::Get);
    Admits("List", &OperationService::List);
    Admits("Wait", &OperationService::Wait);
    Admits("Cancel", &OperationService::Cancel);
    Admits("Download", &OperationService::Download);
    Admits("FinishDownload", &OperationService::FinishDownload);
  }

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const v1::GetOperationRequest* request,
                                v1::Operation* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListOperationsRequest* request,
                                 v1::ListOperationsResponse* response) override;
  grpc::ServerUnaryReactor* Wait(grpc::CallbackServerContext* context,
                                 const v1::WaitOperationRequest* request,
                                 v1::Operation* response) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::CancelOperationRequest* request,
                                   v1::Operation* response) override;
  grpc::ServerWriteReactor<v1::FilePiece>* Download(grpc::CallbackServerContext* context,
                                                    const v1::DownloadRequest* request) override;
  grpc::ServerUnaryReactor* FinishDownload(grpc::CallbackServerContext* context,
                                           const v1::FinishDownloadRequest* request,
                                           v1::FinishDownloadResponse* response) override;

 private:
  Engine* const engine_;
  Followers* const jobs_;
  PeerStreams* const peers_;
  Transfers* const transfers_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_OPERATION_SERVICE_H_
