// muster.v1.OperationService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_OPERATION_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_OPERATION_SERVICE_H_

#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::service {

// The engine and the followers outlive the server that this is registered with. Thread-safe.
class OperationService final : public v1::OperationService::CallbackService {
 public:
  OperationService(Engine* engine, Followers* jobs) : engine_(engine), jobs_(jobs) {}

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

 private:
  Engine* const engine_;
  Followers* const jobs_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_OPERATION_SERVICE_H_
