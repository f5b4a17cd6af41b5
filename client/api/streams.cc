// The calls that follow a job, and how they survive a broken connection.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/api/grpc_client.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {
namespace {

// Between attempts: long enough not to storm a coordinator that is starting, too short for people
// to notice.
constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

template <typename T>
absl::Status GrpcClient::ReadStream(
    const StreamOptions& options, absl::Time deadline,
    const std::function<std::unique_ptr<grpc::ClientReader<T>>(grpc::ClientContext*)>& open,
    const std::function<bool(const T&)>& take, const std::function<bool()>& finished) {
  Cancellation never;
  Cancellation* const cancellation =
      options.cancellation != nullptr ? options.cancellation : &never;
  // Since when nothing has come; InfiniteFuture while the connection is good.
  absl::Time broken_since = absl::InfiniteFuture();
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(deadline - SteadyNow()));
    const Cancellation::Scope scope(cancellation, &context);
    const auto reader = open(&context);
    T message;
    while (reader->Read(&message)) {
      broken_since = absl::InfiniteFuture();
      if (take(message)) continue;
      context.TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    absl::Status status = CallStatus(reader->Finish());
    if (cancellation->cancelled()) return absl::CancelledError("interrupted");
    if (status.ok()) {
      if (finished()) return status;
      status = absl::UnavailableError(
          absl::StrCat("the coordinator at ", address_, " ended the stream before the job's end"));
    }
    if (!absl::IsUnavailable(status)) return status;
    const absl::Time now = SteadyNow();
    broken_since = std::min(broken_since, now);
    const absl::Duration patience = broken_since + options.retry_for - now;
    const absl::Duration left = deadline - now;
    if (patience <= absl::ZeroDuration()) return status;
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(Message(status));
    const absl::Duration pause = std::min({kPause, patience, left});
    if (cancellation->WaitFor(pause)) return absl::CancelledError("interrupted");
  }
}

absl::Status GrpcClient::Watch(const std::string& job_id, const StreamOptions& options,
                               const std::function<bool(const v1::Job&)>& changed) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(Get(job_id).status());
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  bool ended = false;
  return ReadStream<v1::Job>(
      options, deadline,
      [&](grpc::ClientContext* context) { return stub_->WatchJob(context, request); },
      [&](const v1::Job& job) {
        request.set_after_version(job.version());
        // Who follows it follows it to the end of the attempt that there was at first.
        if (request.attempt() == 0) request.set_attempt(job.attempt());
        ended = HasEnded(job.state());
        return changed(job) && !ended;
      },
      [&] { return ended; });
}

absl::StatusOr<v1::Job> GrpcClient::Wait(const std::string& job_id, const StreamOptions& options) {
  v1::Job last;
  RETURN_IF_ERROR(Watch(job_id, options, [&last](const v1::Job& job) {
    last = job;
    return true;
  }));
  return last;
}

absl::Status GrpcClient::Logs(const std::string& job_id, std::optional<uint32_t> rank, bool follow,
                              const StreamOptions& options,
                              const std::function<void(const v1::LogLine&)>& line) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(Get(job_id).status());
  v1::StreamLogsRequest request;
  request.set_job_id(job_id);
  request.set_follow(follow);
  if (rank.has_value()) request.set_rank(*rank);
  return ReadStream<v1::LogLine>(
      options, deadline,
      [&](grpc::ClientContext* context) { return stub_->StreamLogs(context, request); },
      [&](const v1::LogLine& next) {
        request.set_after_sequence(next.sequence());
        line(next);
        return true;
      },
      [] { return true; });
}

absl::Status GrpcClient::Metrics(const std::string& job_id, bool follow,
                                 const StreamOptions& options,
                                 const std::function<void(const v1::StepMetrics&)>& entry) {
  const absl::Time deadline = SteadyNow() + options.timeout;
  RETURN_IF_ERROR(Get(job_id).status());
  v1::StreamMetricsRequest request;
  request.set_job_id(job_id);
  request.set_follow(follow);
  request.set_from_step(1);
  request.set_from_validation(0);
  return ReadStream<v1::StepMetrics>(
      options, deadline,
      [&](grpc::ClientContext* context) { return stub_->StreamMetrics(context, request); },
      [&](const v1::StepMetrics& next) {
        request.set_from_step(next.step() + 1);
        // The pass after a step is still to come.
        request.set_from_validation(next.has_validation() ? next.step() + 1 : next.step());
        entry(next);
        return true;
      },
      [] { return true; });
}

}  // namespace muster::client
