#include "client/api/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/ids/ids.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"

namespace muster::client {
namespace {

// A coordinator answers in milliseconds; what takes so long is a coordinator that hangs.
constexpr absl::Duration kCallTimeout = absl::Seconds(30);

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
  return std::unique_ptr<MusterClient>(new MusterClient(address));
}

MusterClient::MusterClient(const std::string& address)
    : address_(address), channel_(OpenChannel(address)), stub_(v1::JobService::NewStub(channel_)) {}

absl::Status MusterClient::CallStatus(const grpc::Status& status) const {
  absl::Status result = FromGrpc(status);
  // Errors of the coordinator itself have a reason; those of the connection have none.
  if (!absl::IsUnavailable(result) || !ErrorReason(result).empty()) return result;
  return absl::UnavailableError(
      absl::StrCat("no coordinator answers at ", address_, " (", result.message(), ")"));
}

template <typename Request, typename Response>
absl::StatusOr<Response> MusterClient::Call(
    grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  Response response;
  const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
  if (status.ok()) return response;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat("the coordinator at ", address_,
                                               " did not answer within ",
                                               absl::FormatDuration(kCallTimeout)));
  }
  return CallStatus(status);
}

absl::StatusOr<v1::Job> MusterClient::Submit(const v1::JobSpec& spec, const std::string& job_id) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_job_id(job_id);
  request.set_request_id(NewUuid());
  return Call(&v1::JobService::Stub::SubmitJob, request);
}

absl::StatusOr<v1::ValidateJobResponse> MusterClient::Validate(const v1::JobSpec& spec) {
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  return Call(&v1::JobService::Stub::ValidateJob, request);
}

absl::StatusOr<v1::Job> MusterClient::Get(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return Call(&v1::JobService::Stub::GetJob, request);
}

absl::StatusOr<std::vector<v1::Job>> MusterClient::List() {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  do {
    ASSIGN_OR_RETURN(const v1::ListJobsResponse page, Call(&v1::JobService::Stub::ListJobs, request));
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

absl::StatusOr<v1::Job> MusterClient::Stop(const std::string& job_id) {
  v1::StopJobRequest request;
  request.set_job_id(job_id);
  request.set_request_id(NewUuid());
  return Call(&v1::JobService::Stub::StopJob, request);
}

}  // namespace muster::client
