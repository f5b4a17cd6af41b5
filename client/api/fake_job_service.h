// A JobService for tests of clients: over real gRPC, with jobs that the test moves.
#ifndef MUSTER_CLIENT_API_FAKE_JOB_SERVICE_H_
#define MUSTER_CLIENT_API_FAKE_JOB_SERVICE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::client {

// Thread-safe.
class FakeJobService : public v1::JobService::Service {
 public:
  // The job appears, or changes, with the next version; watchers see it.
  void Put(v1::Job job);
  void AddLog(const std::string& job_id, const v1::LogLine& line);
  void AddStep(const std::string& job_id, const v1::StepMetrics& step);
  // All running streams end with UNAVAILABLE, as when the coordinator dies.
  void BreakStreams();
  // Ran after each submission, without a lock, with the job as it was stored.
  void OnSubmit(std::function<void(const v1::Job&)> react);
  // What a stop makes of a job; CANCELLED unless told otherwise.
  void StopLeadsTo(v1::Job::State state);
  void ValidateAnswers(v1::ValidateJobResponse response);

  // How many WatchJob calls have begun, and the after_version of each.
  std::vector<uint64_t> watches() const;
  // Blocks until so many WatchJob calls have begun.
  void AwaitWatches(int count) const;

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest*, v1::Job*) override;
  grpc::Status ValidateJob(grpc::ServerContext*, const v1::ValidateJobRequest*,
                           v1::ValidateJobResponse*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::Job*) override;
  // Pages of at most 2, so that clients must turn them.
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse*) override;
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::Job>*) override;
  grpc::Status StreamLogs(grpc::ServerContext*, const v1::StreamLogsRequest*,
                          grpc::ServerWriter<v1::LogLine>*) override;
  grpc::Status StreamMetrics(grpc::ServerContext*, const v1::StreamMetricsRequest*,
                             grpc::ServerWriter<v1::StepMetrics>*) override;
  grpc::Status StopJob(grpc::ServerContext*, const v1::StopJobRequest*, v1::Job*) override;

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, v1::Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<v1::LogLine>> logs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<v1::StepMetrics>> steps_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const v1::Job&)> on_submit_ ABSL_GUARDED_BY(mutex_);
  v1::Job::State stop_leads_to_ ABSL_GUARDED_BY(mutex_) = v1::Job::CANCELLED;
  v1::ValidateJobResponse validation_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> watches_ ABSL_GUARDED_BY(mutex_);
  // Streams that began in an older era end.
  int era_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_FAKE_JOB_SERVICE_H_
