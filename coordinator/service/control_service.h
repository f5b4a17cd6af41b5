// muster.v1.ControlService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_CONTROL_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_CONTROL_SERVICE_H_

#include "absl/status/status.h"
#include "common/rpc/caller_processor.h"
#include "coordinator/jobs/job.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {

// The engine outlives the server that this is registered with. Thread-safe.
class ControlService final : public Admitting<v1::ControlService::CallbackService> {
 public:
  // `authorize`: who may make which call.
  ControlService(Engine* engine, Authorizer authorize);

 private:
  // How a request becomes a command. `contents` makes the command, without number and step. `check`
  // finds what is wrong with the request whatever its job is, `check_job` what its job lacks beyond
  // the needs of the command's rule; null: nothing.
  template <typename Request>
  struct Rules {
    void (*contents)(const Request& request, v1::Command* command);
    absl::Status (*check)(const Request& request) = nullptr;
    absl::Status (*check_job)(const Request& request, const jobs::Job& job) = nullptr;
  };
  // The call of this name stores a command, and answers with its operation.
  template <typename Request>
  void Stores(const char* name, const Rules<Request>& rules);

  grpc::ServerUnaryReactor* GetTrainability(grpc::CallbackServerContext* context,
                                            const v1::GetTrainabilityRequest* request,
                                            v1::GetTrainabilityResponse* response) override;
  grpc::ServerUnaryReactor* Sample(grpc::CallbackServerContext* context,
                                   const v1::SampleRequest* request,
                                   v1::Operation* response) override;

  Engine* const engine_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CONTROL_SERVICE_H_
