// muster.v1.ControlService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_CONTROL_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_CONTROL_SERVICE_H_

#include <utility>

#include "common/rpc/caller_processor.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/control_service.grpc.pb.h"

namespace muster::service {

// The engine outlives the server that this is registered with. Thread-safe.
class ControlService final : public Admitting<v1::ControlService::CallbackService> {
 public:
  // `authorize`: who may make which call.
  ControlService(Engine* engine, Authorizer authorize)
      : Admitting(std::move(authorize)), engine_(engine) {
    Admits("SetTrainability", &ControlService::SetTrainability);
    Admits("Refresh", &ControlService::Refresh);
    Admits("GetTrainability", &ControlService::GetTrainability);
    Admits("SaveCheckpoint", &ControlService::SaveCheckpoint);
    Admits("GatherOptimizerState", &ControlService::GatherOptimizerState);
    Admits("Consolidate", &ControlService::Consolidate);
    Admits("SetLearningRate", &ControlService::SetLearningRate);
    Admits("RunStage", &ControlService::RunStage);
    Admits("Sample", &ControlService::Sample);
  }

  grpc::ServerUnaryReactor* SetTrainability(grpc::CallbackServerContext* context,
                                            const v1::SetTrainabilityRequest* request,
                                            v1::Operation* response) override;
  grpc::ServerUnaryReactor* Refresh(grpc::CallbackServerContext* context,
                                    const v1::RefreshRequest* request,
                                    v1::Operation* response) override;
  grpc::ServerUnaryReactor* GetTrainability(grpc::CallbackServerContext* context,
                                            const v1::GetTrainabilityRequest* request,
                                            v1::GetTrainabilityResponse* response) override;
  grpc::ServerUnaryReactor* Consolidate(grpc::CallbackServerContext* context,
                                        const v1::ConsolidateRequest* request,
                                        v1::Operation* response) override;
  grpc::ServerUnaryReactor* GatherOptimizerState(grpc::CallbackServerContext* context,
                                                 const v1::GatherOptimizerStateRequest* request,
                                                 v1::Operation* response) override;
  grpc::ServerUnaryReactor* SaveCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::SaveCheckpointRequest* request,
                                           v1::Operation* response) override;
  grpc::ServerUnaryReactor* SetLearningRate(grpc::CallbackServerContext* context,
                                            const v1::SetLearningRateRequest* request,
                                            v1::Operation* response) override;
  grpc::ServerUnaryReactor* RunStage(grpc::CallbackServerContext* context,
                                     const v1::RunStageRequest* request,
                                     v1::Operation* response) override;
  grpc::ServerUnaryReactor* Sample(grpc::CallbackServerContext* context,
                                   const v1::SampleRequest* request,
                                   v1::Operation* response) override;

 private:
  // Stores the command that the request asks for, unless the request is `bad`, and answers with its
  // operation. `check`: what the command needs of its job, beyond its rule.
  template <typename Request>
  grpc::ServerUnaryReactor* Post(grpc::CallbackServerContext* context, const Request& request,
                                 const absl::Status& bad, const v1::Command& contents,
                                 v1::Operation* response,
                                 const cluster::Cluster::Check& check = nullptr);

  Engine* const engine_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CONTROL_SERVICE_H_
