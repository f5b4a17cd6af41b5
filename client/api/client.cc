#include "client/api/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/rpc/proto_time.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {
namespace {

// The length of one part of a longer wait: below kCallTimeout.
constexpr absl::Duration kWaitInOneCall = absl::Seconds(20);
constexpr int kPageSize = 100;

// `request` for this job.
template <typename Request>
Request Of(const std::string& job_id, Request request = {}) {
  request.set_job_id(job_id);
  return request;
}

}  // namespace

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::SUCCEEDED || state == v1::Job::FAILED || state == v1::Job::CANCELLED;
}

absl::StatusOr<std::unique_ptr<MusterClient>> MusterClient::Connect(const std::string& address,
                                                                    const certs::TlsFiles& tls) {
  ASSIGN_OR_RETURN(auto credentials, CredentialsFor(address, tls));
  return std::make_unique<MusterClient>(address, OpenChannel(address, {}, std::move(credentials)));
}

absl::StatusOr<v1::Job> MusterClient::Submit(const v1::JobSpec& spec, const std::string& job_id,
                                             const RetryOptions& options,
                                             const std::string& job_file) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_job_id(job_id);
  request.set_job_file(job_file);
  return Change(&v1::JobService::Stub::SubmitJob, std::move(request), options);
}

absl::StatusOr<v1::Job> MusterClient::Get(const std::string& job_id) {
  return Read(&v1::JobService::Stub::GetJob, Of<v1::GetJobRequest>(job_id));
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
    ASSIGN_OR_RETURN(v1::ListJobsResponse page, Read(&v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) *all.add_jobs() = std::move(job);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() &&
           (!options.limit.has_value() || all.jobs_size() < *options.limit));
  all.set_next_page_token(request.page_token());
  return all;
}

absl::StatusOr<v1::Job> MusterClient::Stop(const std::string& job_id, const SteerOptions& options) {
  return Steer(&v1::JobService::Stub::StopJob, Of<v1::StopJobRequest>(job_id), options);
}

absl::StatusOr<v1::Job> MusterClient::Retry(const std::string& job_id, const SteerOptions& options,
                                            const RetrySettings& settings) {
  v1::RetryJobRequest request;
  request.mutable_settings()->Add(settings.settings.begin(), settings.settings.end());
  request.set_settings_folder(settings.settings_folder);
  if (settings.from_step.has_value()) request.set_from_step(*settings.from_step);
  return Steer(&v1::JobService::Stub::RetryJob, Of(job_id, std::move(request)), options);
}

absl::StatusOr<v1::Operation> MusterClient::GetOperation(const std::string& name) {
  v1::GetOperationRequest request;
  request.set_name(name);
  return Read(&v1::OperationService::Stub::Get, request);
}

absl::StatusOr<std::vector<v1::Operation>> MusterClient::Operations(const std::string& job_id) {
  std::vector<v1::Operation> all;
  auto request = Of<v1::ListOperationsRequest>(job_id);
  do {
    ASSIGN_OR_RETURN(v1::ListOperationsResponse page,
                     Read(&v1::OperationService::Stub::List, request));
    for (v1::Operation& operation : *page.mutable_operations()) all.push_back(std::move(operation));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

absl::StatusOr<v1::Operation> MusterClient::WaitOperation(const std::string& name,
                                                          const StreamOptions& options) {
  Retries retries(channel(), options.retry_for, options.cancellation);
  const absl::Time deadline = SteadyNow() + options.timeout;
  v1::WaitOperationRequest request;
  request.set_name(name);
  v1::OperationService::Stub stub(channel());
  const bool was_there = Reachable();
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("operation '", name, "' is not done in time"));
    }
    const absl::Duration wait = std::min(left, kWaitInOneCall);
    *request.mutable_timeout() = ToProto(wait);
    v1::Operation operation;
    const absl::Status status = CallOnce(
        request,
        [&](grpc::ClientContext* context) { return stub.Wait(context, request, &operation); },
        retries.cancellation(), kCallTimeout);
    if (status.ok() && operation.done()) return operation;
    if (retries.cancellation()->cancelled()) return absl::CancelledError("interrupted");
    if (status.ok()) {
      retries.Answered();
      continue;
    }
    if (!absl::IsUnavailable(status) || !was_there) return status;
    RETURN_IF_ERROR(retries.Await(status));
  }
}

absl::StatusOr<v1::DeleteJobResponse> MusterClient::Delete(const std::string& job_id,
                                                           const RetryOptions& options) {
  return Change(&v1::JobService::Stub::DeleteJob, Of<v1::DeleteJobRequest>(job_id), options);
}

absl::Status MusterClient::Watch(const std::string& job_id, const StreamOptions& options,
                                 const std::function<bool(const v1::Job&)>& changed) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(Get(job_id).status());
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  bool ended = false;
  return ReadStream(
      &v1::JobService::Stub::WatchJob, request, options, deadline,
      [&](const v1::Job& job) {
        request.set_after_version(job.version());
        // The caller follows the job to the end of the first attempt that this call saw.
        if (request.attempt() == 0) request.set_attempt(job.attempt());
        ended = HasEnded(job.state());
        return changed(job) && !ended;
      },
      [&] { return ended; });
}

absl::StatusOr<v1::Job> MusterClient::Wait(const std::string& job_id,
                                           const StreamOptions& options) {
  v1::Job last;
  RETURN_IF_ERROR(Watch(job_id, options, [&last](const v1::Job& job) {
    last = job;
    return true;
  }));
  return last;
}

absl::Status MusterClient::Logs(const std::string& job_id, std::optional<uint32_t> rank,
                                bool follow, const StreamOptions& options,
                                const std::function<void(const v1::LogLine&)>& line) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(Get(job_id).status());
  v1::StreamLogsRequest request;
  request.set_job_id(job_id);
  request.set_follow(follow);
  if (rank.has_value()) request.set_rank(*rank);
  return ReadStream(&v1::JobService::Stub::StreamLogs, request, options, deadline,
                    [&](const v1::LogLine& next) {
                      request.set_after_sequence(next.sequence());
                      line(next);
                      return true;
                    });
}

absl::Status MusterClient::Metrics(const std::string& job_id, bool follow,
                                   const StreamOptions& options,
                                   const std::function<void(const v1::StepMetrics&)>& entry) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(Get(job_id).status());
  v1::StreamMetricsRequest request;
  request.set_job_id(job_id);
  request.set_follow(follow);
  request.set_from_step(1);
  request.set_from_validation(0);
  request.set_from_test(0);
  return ReadStream(
      &v1::JobService::Stub::StreamMetrics, request, options, deadline,
      [&](const v1::StepMetrics& next) {
        request.set_from_step(next.step() + 1);
        // Passes after this step that were not received may still come.
        const auto from = [&next](uint64_t before, bool received) {
          return received ? next.step() + 1 : std::max(before, next.step());
        };
        request.set_from_validation(from(request.from_validation(), next.has_validation()));
        request.set_from_test(from(request.from_test(), next.has_test()));
        entry(next);
        return true;
      });
}

absl::StatusOr<std::string> MusterClient::Download(
    const std::string& name, uint64_t offset, const StreamOptions& options,
    const std::function<absl::Status(const std::string&)>& take) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(GetOperation(name).status());
  v1::DownloadRequest request;
  request.set_name(name);
  request.set_offset(offset);
  std::string hash;
  absl::Status taken;
  RETURN_IF_ERROR(ReadStream(
      &v1::OperationService::Stub::Download, request, options, deadline,
      [&](const v1::FilePiece& piece) {
        if (piece.offset() != request.offset()) {
          taken = absl::DataLossError(
              absl::StrCat("operation '", name, "': expected the bytes from ", request.offset(),
                           " on, found those from ", piece.offset(), " on"));
          return false;
        }
        if (!piece.data().empty()) taken = take(piece.data());
        if (!taken.ok()) return false;
        request.set_offset(request.offset() + piece.data().size());
        hash = piece.hash();
        return true;
      },
      [&] { return !hash.empty(); }));
  RETURN_IF_ERROR(taken);
  return hash;
}

}  // namespace muster::client
