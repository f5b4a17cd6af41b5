#include "client/api/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/api/grpc_client.h"
#include "common/ids/ids.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"

namespace muster::client {
namespace {

// A coordinator answers in milliseconds; what takes so long is a coordinator that hangs.
constexpr absl::Duration kCallTimeout = absl::Seconds(30);
// Between attempts of a call that is repeated.
constexpr absl::Duration kRetryPause = absl::Milliseconds(200);
constexpr int kPageSize = 100;

}  // namespace

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

absl::StatusOr<std::unique_ptr<MusterClient>> MusterClient::Connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (colon == std::string::npos || colon == 0 || port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("address '", address, "': expected host:port, such as 127.0.0.1:7070"));
  }
  return std::make_unique<GrpcClient>(address);
}

GrpcClient::GrpcClient(const std::string& address)
    : address_(address),
      channel_(OpenChannel(address)),
      stub_(v1::JobService::NewStub(channel_)),
      cluster_stub_(v1::ClusterService::NewStub(channel_)) {}

absl::Status GrpcClient::CallStatus(const grpc::Status& status) const {
  absl::Status result = FromGrpc(status);
  // Errors of the coordinator itself have a reason; those of the connection have none.
  if (!absl::IsUnavailable(result) || !ErrorReason(result).empty()) return result;
  return absl::UnavailableError(
      absl::StrCat("no coordinator answers at ", address_, " (", result.message(), ")"));
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> GrpcClient::Call(Stub* stub,
                                            grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                            const Request& request, Cancellation* cancellation) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  const Cancellation::Scope scope(cancellation, &context);
  Response response;
  const grpc::Status status = (stub->*method)(&context, request, &response);
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat("the coordinator at ", address_,
                                               " did not answer within ",
                                               absl::FormatDuration(kCallTimeout)));
  }
  return CallStatus(status);
}

bool GrpcClient::Reachable() {
  const auto deadline = absl::ToChronoTime(absl::Now() + kCallTimeout);
  while (true) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel_->WaitForStateChange(state, deadline)) return false;
  }
}

template <typename Request, typename Response>
absl::StatusOr<Response> GrpcClient::Change(
    grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    Request request, const RetryOptions& options) {
  Cancellation never;
  Cancellation* const cancellation = options.cancellation != nullptr ? options.cancellation : &never;
  request.set_request_id(NewUuid());
  const bool was_there = Reachable();
  absl::Time broken_since = absl::InfiniteFuture();
  while (true) {
    const absl::StatusOr<Response> response = Call(stub_.get(), method, request, cancellation);
    if (cancellation->cancelled() && !response.ok()) return absl::CancelledError("interrupted");
    if (!absl::IsUnavailable(response.status()) || !was_there) return response;
    const absl::Time now = absl::Now();
    broken_since = std::min(broken_since, now);
    const absl::Duration left = broken_since + options.retry_for - now;
    if (left <= absl::ZeroDuration()) return response;
    if (cancellation->WaitFor(std::min(kRetryPause, left))) {
      return absl::CancelledError("interrupted");
    }
  }
}

absl::StatusOr<v1::Job> GrpcClient::Submit(const v1::JobSpec& spec, const std::string& job_id,
                                             const RetryOptions& options) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_job_id(job_id);
  return Change(&v1::JobService::Stub::SubmitJob, std::move(request), options);
}

absl::StatusOr<v1::ValidateJobResponse> GrpcClient::Validate(const v1::JobSpec& spec) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  return Call(stub_.get(), &v1::JobService::Stub::ValidateJob, request);
}

absl::StatusOr<v1::Job> GrpcClient::Get(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return Call(stub_.get(), &v1::JobService::Stub::GetJob, request);
}

absl::StatusOr<v1::ListJobsResponse> GrpcClient::List(const ListOptions& options) {
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
                     Call(stub_.get(), &v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() &&
           (!options.limit.has_value() || all.jobs_size() < *options.limit));
  all.set_next_page_token(request.page_token());
  return all;
}

absl::StatusOr<v1::Job> GrpcClient::Stop(const std::string& job_id, const RetryOptions& options) {
  v1::StopJobRequest request;
  request.set_job_id(job_id);
  return Change(&v1::JobService::Stub::StopJob, std::move(request), options);
}

absl::StatusOr<v1::DeleteJobResponse> GrpcClient::Delete(const std::string& job_id,
                                                           const RetryOptions& options) {
  v1::DeleteJobRequest request;
  request.set_job_id(job_id);
  return Change(&v1::JobService::Stub::DeleteJob, std::move(request), options);
}

absl::StatusOr<v1::ListNodesResponse> GrpcClient::Nodes() {
  return Call(cluster_stub_.get(), &v1::ClusterService::Stub::ListNodes, v1::ListNodesRequest());
}

}  // namespace muster::client
