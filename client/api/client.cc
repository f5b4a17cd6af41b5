#include "client/api/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/api/retries.h"
#include "client/api/utf8_texts.h"
#include "common/ids/ids.h"
#include "common/rpc/address.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "common/rpc/proto_time.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {
namespace {

// A coordinator answers in milliseconds; if a call takes this long, the coordinator hangs.
constexpr absl::Duration kCallTimeout = absl::Seconds(30);
// The length of one part of a longer wait: below kCallTimeout.
constexpr absl::Duration kWaitInOneCall = absl::Seconds(20);
constexpr int kPageSize = 100;

}  // namespace

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

absl::StatusOr<std::unique_ptr<MusterClient>> MusterClient::Connect(const std::string& address,
                                                                    const certs::TlsFiles& tls) {
  ASSIGN_OR_RETURN(auto credentials, CredentialsFor(address, tls));
  // Its constructor is private.
  return std::unique_ptr<MusterClient>(
      new MusterClient(address, OpenChannel(address, {}, std::move(credentials))));
}

MusterClient::MusterClient(const std::string& address, std::shared_ptr<grpc::Channel> channel)
    : address_(address),
      channel_(std::move(channel)),
      stub_(v1::JobService::NewStub(channel_)),
      control_stub_(v1::ControlService::NewStub(channel_)),
      operation_stub_(v1::OperationService::NewStub(channel_)),
      cluster_stub_(v1::ClusterService::NewStub(channel_)) {}

absl::Status MusterClient::CallStatus(const grpc::Status& status) const {
  absl::Status result = FromGrpc(status);
  // Errors of the coordinator itself have a reason; those of the connection have none.
  if (!absl::IsUnavailable(result) || !ErrorReason(result).empty()) return result;
  return absl::UnavailableError(
      absl::StrCat("no coordinator answers at ", address_, " (", result.message(), ")"));
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> MusterClient::CallOnce(
    Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, Cancellation* cancellation, absl::Duration timeout) {
  RETURN_IF_ERROR(CheckTexts(request));
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(timeout));
  const Cancellation::Scope scope(cancellation, &context);
  Response response;
  const grpc::Status status = (stub->*method)(&context, request, &response);
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    // In whole seconds: what is left of several attempts' time is seldom a round number.
    return absl::UnavailableError(
        absl::StrCat("the coordinator at ", address_, " did not answer within ",
                     absl::FormatDuration(absl::Ceil(timeout, absl::Seconds(1)))));
  }
  return CallStatus(status);
}

bool MusterClient::Reachable() {
  const gpr_timespec deadline = DeadlineAfter(kCallTimeout);
  while (true) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel_->WaitForStateChange(state, deadline)) return false;
  }
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> MusterClient::Repeat(
    Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request, const RetryOptions& options) {
  Retries retries(channel_, options.retry_for, options.cancellation);
  const bool was_there = Reachable();
  while (true) {
    const absl::StatusOr<Response> response =
        CallOnce(stub, method, request, retries.cancellation(), kCallTimeout);
    if (retries.cancellation()->cancelled() && !response.ok()) {
      return absl::CancelledError("interrupted");
    }
    if (!absl::IsUnavailable(response.status()) || !was_there) return response;
    RETURN_IF_ERROR(retries.Await(response.status()));
  }
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> MusterClient::Read(Stub* stub,
                                            grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                            const Request& request) {
  const absl::Time deadline = SteadyNow() + kCallTimeout;
  Retries retries(channel_, kCallTimeout, nullptr);
  const bool was_there = Reachable();
  while (true) {
    // The last attempt, which may begin shortly before the deadline, gets a moment.
    const absl::Duration left = std::max(deadline - SteadyNow(), absl::Seconds(1));
    const absl::StatusOr<Response> response = CallOnce(stub, method, request, nullptr, left);
    const bool broken = absl::IsUnavailable(response.status()) && was_there;
    if (!broken || SteadyNow() >= deadline) return response;
    RETURN_IF_ERROR(retries.Await(response.status()));
  }
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> MusterClient::Change(
    Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    Request request, const RetryOptions& options) {
  request.set_request_id(NewUuid());
  return Repeat(stub, method, request, options);
}

absl::StatusOr<v1::Job> MusterClient::Submit(const v1::JobSpec& spec, const std::string& job_id,
                                             const RetryOptions& options,
                                             const std::string& job_file) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_job_id(job_id);
  request.set_job_file(job_file);
  return Change(stub_.get(), &v1::JobService::Stub::SubmitJob, std::move(request), options);
}

absl::StatusOr<v1::ValidateJobResponse> MusterClient::Validate(const v1::JobSpec& spec) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  return Read(stub_.get(), &v1::JobService::Stub::ValidateJob, request);
}

absl::StatusOr<v1::Job> MusterClient::Get(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return Read(stub_.get(), &v1::JobService::Stub::GetJob, request);
}

absl::StatusOr<v1::ListJobsResponse> MusterClient::List(const ListOptions& options) {
  v1::ListJobsResponse all;
  v1::ListJobsRequest request;
  request.mutable_states()->Add(options.states.begin(), options.states.end());
  request.set_page_token(options.page_token);
  do {
    request.set_page_size(kPageSize);
    if (options.limit.has_value()) {
      request.set_page_size(std::min(kPageSize, *options.limit - all.jobs_size()));
    }
    ASSIGN_OR_RETURN(v1::ListJobsResponse page,
                     Read(stub_.get(), &v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() &&
           (!options.limit.has_value() || all.jobs_size() < *options.limit));
  all.set_next_page_token(request.page_token());
  return all;
}

absl::StatusOr<v1::Job> MusterClient::Stop(const std::string& job_id, const SteerOptions& options) {
  v1::StopJobRequest request;
  request.set_job_id(job_id);
  request.set_requested_by(options.requested_by);
  if (options.at_step.has_value()) request.set_at_step(*options.at_step);
  return Change(stub_.get(), &v1::JobService::Stub::StopJob, std::move(request), options.retry);
}

absl::StatusOr<v1::Job> MusterClient::Retry(const std::string& job_id, const SteerOptions& options,
                                            const RetrySettings& settings) {
  v1::RetryJobRequest request;
  request.set_job_id(job_id);
  request.set_requested_by(options.requested_by);
  request.mutable_settings()->Add(settings.settings.begin(), settings.settings.end());
  request.set_settings_folder(settings.settings_folder);
  if (settings.from_step.has_value()) request.set_from_step(*settings.from_step);
  return Change(stub_.get(), &v1::JobService::Stub::RetryJob, std::move(request), options.retry);
}

absl::StatusOr<v1::Operation> MusterClient::Send(const google::protobuf::Message& request,
                                                 const CommandCall& call,
                                                 const RetryOptions& options) {
  struct Caller {
    const CommandCall& call;
    grpc::Status Call(grpc::ClientContext* context, const google::protobuf::Message&,
                      v1::Operation* operation) {
      return call(context, operation);
    }
  };
  Caller caller{call};
  return Repeat(&caller, &Caller::Call, request, options);
}

absl::StatusOr<v1::Operation> MusterClient::Pause(const std::string& job_id,
                                                  const SteerOptions& options) {
  v1::PauseJobRequest request;
  Fill(job_id, options, &request);
  return Repeat(stub_.get(), &v1::JobService::Stub::PauseJob, request, options.retry);
}

absl::StatusOr<v1::Operation> MusterClient::Resume(const std::string& job_id,
                                                   const SteerOptions& options,
                                                   const StartOptions& start) {
  v1::ResumeJobRequest request;
  request.set_from_scratch(start.from_scratch);
  request.set_from(start.from);
  Fill(job_id, options, &request);
  return Repeat(stub_.get(), &v1::JobService::Stub::ResumeJob, request, options.retry);
}

absl::StatusOr<v1::GetTrainabilityResponse> MusterClient::GetTrainability(
    const std::string& job_id) {
  v1::GetTrainabilityRequest request;
  request.set_job_id(job_id);
  return Read(control_stub_.get(), &v1::ControlService::Stub::GetTrainability, request);
}

absl::StatusOr<v1::Operation> MusterClient::GetOperation(const std::string& name) {
  v1::GetOperationRequest request;
  request.set_name(name);
  return Read(operation_stub_.get(), &v1::OperationService::Stub::Get, request);
}

absl::StatusOr<std::vector<v1::Operation>> MusterClient::Operations(const std::string& job_id) {
  std::vector<v1::Operation> all;
  v1::ListOperationsRequest request;
  request.set_job_id(job_id);
  do {
    ASSIGN_OR_RETURN(v1::ListOperationsResponse page,
                     Read(operation_stub_.get(), &v1::OperationService::Stub::List, request));
    for (v1::Operation& operation : *page.mutable_operations()) all.push_back(std::move(operation));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

absl::StatusOr<v1::Operation> MusterClient::WaitOperation(const std::string& name,
                                                          const StreamOptions& options) {
  Retries retries(channel_, options.retry_for, options.cancellation);
  const absl::Time deadline = SteadyNow() + options.timeout;
  v1::WaitOperationRequest request;
  request.set_name(name);
  const bool was_there = Reachable();
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("operation '", name, "' is not done in time"));
    }
    const absl::Duration wait = std::min(left, kWaitInOneCall);
    *request.mutable_timeout() = ToProto(wait);
    const auto operation = CallOnce(operation_stub_.get(), &v1::OperationService::Stub::Wait,
                                    request, retries.cancellation(), kCallTimeout);
    if (operation.ok() && operation->done()) return operation;
    if (retries.cancellation()->cancelled()) return absl::CancelledError("interrupted");
    if (operation.ok()) {
      retries.Answered();
      continue;
    }
    if (!absl::IsUnavailable(operation.status()) || !was_there) return operation;
    RETURN_IF_ERROR(retries.Await(operation.status()));
  }
}

absl::Status MusterClient::FinishDownload(const std::string& name) {
  v1::FinishDownloadRequest request;
  request.set_name(name);
  return Read(operation_stub_.get(), &v1::OperationService::Stub::FinishDownload, request).status();
}

absl::StatusOr<v1::Operation> MusterClient::CancelOperation(const std::string& name,
                                                            const SteerOptions& options) {
  v1::CancelOperationRequest request;
  request.set_name(name);
  request.set_requested_by(options.requested_by);
  return Change(operation_stub_.get(), &v1::OperationService::Stub::Cancel, std::move(request),
                options.retry);
}

absl::StatusOr<v1::DeleteJobResponse> MusterClient::Delete(const std::string& job_id,
                                                           const RetryOptions& options) {
  v1::DeleteJobRequest request;
  request.set_job_id(job_id);
  return Change(stub_.get(), &v1::JobService::Stub::DeleteJob, std::move(request), options);
}

absl::Status MusterClient::ForgetNode(const std::string& node, const SteerOptions& options) {
  v1::ForgetNodeRequest request;
  request.set_node(node);
  request.set_requested_by(options.requested_by);
  return Change(cluster_stub_.get(), &v1::ClusterService::Stub::ForgetNode, std::move(request),
                options.retry)
      .status();
}

absl::StatusOr<v1::ListNodesResponse> MusterClient::Nodes() {
  return Read(cluster_stub_.get(), &v1::ClusterService::Stub::ListNodes, v1::ListNodesRequest());
}

template <typename Request>
absl::StatusOr<v1::Node> MusterClient::ChangeNode(
    grpc::Status (v1::ClusterService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                     v1::Node*),
    const std::string& node, const SteerOptions& options) {
  Request request;
  request.set_node(node);
  request.set_requested_by(options.requested_by);
  return Change(cluster_stub_.get(), method, std::move(request), options.retry);
}

absl::StatusOr<v1::Node> MusterClient::DrainNode(const std::string& node,
                                                 const SteerOptions& options,
                                                 std::optional<absl::Duration> deadline) {
  v1::DrainNodeRequest request;
  request.set_node(node);
  request.set_requested_by(options.requested_by);
  if (deadline.has_value()) *request.mutable_deadline() = ToProto(*deadline);
  return Change(cluster_stub_.get(), &v1::ClusterService::Stub::DrainNode, std::move(request),
                options.retry);
}

absl::StatusOr<v1::Node> MusterClient::CordonNode(const std::string& node,
                                                  const SteerOptions& options) {
  return ChangeNode(&v1::ClusterService::Stub::CordonNode, node, options);
}

absl::StatusOr<v1::Node> MusterClient::UncordonNode(const std::string& node,
                                                    const SteerOptions& options) {
  return ChangeNode(&v1::ClusterService::Stub::UncordonNode, node, options);
}

absl::Status MusterClient::Backup(const std::function<absl::Status(const std::string&)>& take) {
  grpc::ClientContext context;
  const auto reader = cluster_stub_->Backup(&context, v1::BackupRequest());
  v1::BackupChunk chunk;
  while (reader->Read(&chunk)) {
    if (const absl::Status taken = take(chunk.data()); !taken.ok()) {
      context.TryCancel();
      reader->Finish();
      return taken;
    }
  }
  return CallStatus(reader->Finish());
}

}  // namespace muster::client
