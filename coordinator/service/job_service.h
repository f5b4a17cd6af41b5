// muster.v1.JobService over the engine.
#ifndef MUSTER_COORDINATOR_SERVICE_JOB_SERVICE_H_
#define MUSTER_COORDINATOR_SERVICE_JOB_SERVICE_H_

#include <utility>

#include "common/rpc/caller_processor.h"
#include "coordinator/membership/timing.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/engine.h"
#include "coordinator/service/follow.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::service {

// The engine and the followers outlive the server that this is registered with. Thread-safe.
class JobService final : public Admitting<v1::JobService::CallbackService> {
 public:
  // timing: the one with which the coordinator runs. `authorize`: who may make which call, also
  // while it goes on.
  JobService(Engine* engine, Followers* jobs, Followers* logs, Followers* steps,
             const membership::Timing& timing, Authorizer authorize)
      : Admitting(std::move(authorize)),
        engine_(engine),
        jobs_(jobs),
        logs_(logs),
        steps_(steps),
        timing_(timing) {
    Admits("SubmitJob", &JobService::SubmitJob);
    Admits("ValidateJob", &JobService::ValidateJob);
    Admits("ParseJob", &JobService::ParseJob);
    Admits("GetJob", &JobService::GetJob);
    Admits("ListJobs", &JobService::ListJobs);
    Admits("WatchJob", &JobService::WatchJob);
    Admits("StreamLogs", &JobService::StreamLogs);
    Admits("StreamMetrics", &JobService::StreamMetrics);
    Admits("StopJob", &JobService::StopJob);
    Admits("PauseJob", &JobService::PauseJob);
    Admits("ResumeJob", &JobService::ResumeJob);
    Admits("RetryJob", &JobService::RetryJob);
    Admits("DeleteJob", &JobService::DeleteJob);
  }

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* ValidateJob(grpc::CallbackServerContext* context,
                                        const v1::ValidateJobRequest* request,
                                        v1::ValidateJobResponse* response) override;
  grpc::ServerUnaryReactor* ParseJob(grpc::CallbackServerContext* context,
                                     const v1::ParseJobRequest* request,
                                     v1::ParseJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context,
                                    const v1::StopJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::Operation* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Operation* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* RetryJob(grpc::CallbackServerContext* context,
                                     const v1::RetryJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerWriteReactor<v1::Job>* WatchJob(grpc::CallbackServerContext* context,
                                              const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::LogLine>* StreamLogs(grpc::CallbackServerContext* context,
                                                    const v1::StreamLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::StepMetrics>* StreamMetrics(
      grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) override;

 private:
  Engine* const engine_;
  Followers* const jobs_;
  Followers* const logs_;
  Followers* const steps_;
  const membership::Timing timing_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_JOB_SERVICE_H_
