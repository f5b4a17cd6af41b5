// The client over gRPC.
#ifndef MUSTER_CLIENT_API_GRPC_CLIENT_H_
#define MUSTER_CLIENT_API_GRPC_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/api/cancellation.h"
#include "client/api/client.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::client {

class GrpcClient : public MusterClient {
 public:
  // host:port
  explicit GrpcClient(const std::string& address);

  const std::string& address() const override { return address_; }
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& job_id,
                                 const RetryOptions& options) override;
  absl::StatusOr<v1::ValidateJobResponse> Validate(const v1::JobSpec& spec) override;
  absl::StatusOr<v1::Job> Get(const std::string& job_id) override;
  absl::StatusOr<v1::ListJobsResponse> List(const ListOptions& options) override;
  absl::StatusOr<v1::Job> Stop(const std::string& job_id, const SteerOptions& options) override;
  absl::StatusOr<v1::Job> Retry(const std::string& job_id, const SteerOptions& options) override;
  absl::StatusOr<v1::DeleteJobResponse> Delete(const std::string& job_id,
                                               const RetryOptions& options) override;
  absl::StatusOr<v1::ListNodesResponse> Nodes() override;
  absl::Status ForgetNode(const std::string& node, const SteerOptions& options) override;
  absl::StatusOr<v1::Node> DrainNode(const std::string& node, const SteerOptions& options,
                                     std::optional<absl::Duration> deadline) override;
  absl::StatusOr<v1::Node> CordonNode(const std::string& node,
                                      const SteerOptions& options) override;
  absl::StatusOr<v1::Node> UncordonNode(const std::string& node,
                                        const SteerOptions& options) override;
  absl::Status Backup(const std::function<absl::Status(const std::string&)>& take) override;
  absl::StatusOr<v1::Operation> Pause(const std::string& job_id,
                                      const SteerOptions& options) override;
  absl::StatusOr<v1::Operation> Resume(const std::string& job_id, const SteerOptions& options,
                                       const StartOptions& start) override;
  absl::StatusOr<v1::Operation> SetTrainability(const std::string& job_id,
                                                const std::vector<v1::TrainableRule>& rules,
                                                bool dry_run, const SteerOptions& options) override;
  absl::StatusOr<v1::Operation> Refresh(const std::string& job_id,
                                        const SteerOptions& options) override;
  absl::StatusOr<v1::GetTrainabilityResponse> GetTrainability(const std::string& job_id) override;
  absl::StatusOr<v1::Operation> SaveCheckpoint(const std::string& job_id,
                                               const SteerOptions& options) override;
  absl::StatusOr<v1::Operation> SetLearningRate(const std::string& job_id, double rate,
                                                const SteerOptions& options) override;
  absl::StatusOr<v1::Operation> GetOperation(const std::string& name) override;
  absl::StatusOr<std::vector<v1::Operation>> Operations(const std::string& job_id) override;
  absl::StatusOr<v1::Operation> WaitOperation(const std::string& name,
                                              const StreamOptions& options) override;
  absl::StatusOr<v1::Operation> CancelOperation(const std::string& name,
                                                const SteerOptions& options) override;
  absl::Status Watch(const std::string& job_id, const StreamOptions& options,
                     const std::function<bool(const v1::Job&)>& changed) override;
  absl::StatusOr<v1::Job> Wait(const std::string& job_id, const StreamOptions& options) override;
  absl::Status Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                    const StreamOptions& options,
                    const std::function<void(const v1::LogLine&)>& line) override;
  absl::Status Metrics(const std::string& job_id, bool follow, const StreamOptions& options,
                       const std::function<void(const v1::StepMetrics&)>& entry) override;

 private:
  // One unary call with its deadline. `cancellation` may be null.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, Cancellation* cancellation = nullptr);
  // A call that changes something: gives `request` its id, and repeats it while the connection is
  // broken.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Change(Stub* stub,
                                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Response*),
                                  Request request, const RetryOptions& options);
  // The same of a change of one running job.
  template <typename Stub, typename Request>
  absl::StatusOr<v1::Operation> Steer(Stub* stub,
                                      grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, v1::Operation*),
                                      const std::string& job_id, Request request,
                                      const SteerOptions& options);
  // The same of a change of one node.
  template <typename Request>
  absl::StatusOr<v1::Node> ChangeNode(grpc::Status (v1::ClusterService::Stub::*method)(
                                          grpc::ClientContext*, const Request&, v1::Node*),
                                      const std::string& node, const SteerOptions& options);
  // Whether the coordinator could be reached. Waits for the answer to the first attempt to connect.
  bool Reachable();

  // Opens a stream with `open` and hands each message to `take` (false: enough) until it ends;
  // again while the connection breaks, or while it ends in good order but `finished` says that more
  // must come; until `deadline` of SteadyNow().
  template <typename T>
  absl::Status ReadStream(
      const StreamOptions& options, absl::Time deadline,
      const std::function<std::unique_ptr<grpc::ClientReader<T>>(grpc::ClientContext*)>& open,
      const std::function<bool(const T&)>& take, const std::function<bool()>& finished);

  // The status of a call as callers see it: with the address where the coordinator was not reached.
  absl::Status CallStatus(const grpc::Status& status) const;

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::JobService::Stub> stub_;
  const std::unique_ptr<v1::ControlService::Stub> control_stub_;
  const std::unique_ptr<v1::OperationService::Stub> operation_stub_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_stub_;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_GRPC_CLIENT_H_
