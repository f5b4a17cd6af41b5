// The calls that follow a job, and how they survive a broken connection.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/api/client.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {

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
        // Passes after this step that have not been received may still come.
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
