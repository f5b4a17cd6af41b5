// The calls that follow a job, and how they survive a broken connection.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/api/client.h"
#include "client/api/retries.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {

template <typename T>
absl::Status MusterClient::ReadStream(
    const StreamOptions& options, absl::Time deadline,
    const std::function<std::unique_ptr<grpc::ClientReader<T>>(grpc::ClientContext*)>& open,
    const std::function<bool(const T&)>& take, const std::function<bool()>& finished) {
  Retries retries(channel_, options.retry_for, options.cancellation);
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(deadline - SteadyNow()));
    const Cancellation::Scope scope(retries.cancellation(), &context);
    const auto reader = open(&context);
    T message;
    while (reader->Read(&message)) {
      retries.Answered();
      if (take(message)) continue;
      context.TryCancel();
      reader->Finish();
      return absl::OkStatus();
    }
    absl::Status status = CallStatus(reader->Finish());
    if (retries.cancellation()->cancelled()) return absl::CancelledError("interrupted");
    if (status.ok()) {
      if (finished()) return status;
      status = absl::UnavailableError(
          absl::StrCat("the coordinator at ", address_, " ended the stream before its end"));
    }
    if (!absl::IsUnavailable(status)) return status;
    RETURN_IF_ERROR(retries.Await(status, deadline));
  }
}

absl::Status MusterClient::Watch(const std::string& job_id, const StreamOptions& options,
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
        // A caller follows the job to the end of the attempt that was current at first.
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
  return ReadStream<v1::StepMetrics>(
      options, deadline,
      [&](grpc::ClientContext* context) { return stub_->StreamMetrics(context, request); },
      [&](const v1::StepMetrics& next) {
        request.set_from_step(next.step() + 1);
        // Passes after this step that have not been received may still come.
        const auto from = [&next](uint64_t before, bool received) {
          return received ? next.step() + 1 : std::max(before, next.step());
        };
        request.set_from_validation(from(request.from_validation(), next.has_validation()));
        request.set_from_test(from(request.from_test(), next.has_test()));
        entry(next);
        return true;
      },
      [] { return true; });
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
  RETURN_IF_ERROR(ReadStream<v1::FilePiece>(
      options, deadline,
      [&](grpc::ClientContext* context) { return operation_stub_->Download(context, request); },
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
