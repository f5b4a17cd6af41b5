// A JobService for tests of clients: over real gRPC, with jobs whose state the test changes.
#ifndef MUSTER_CLIENT_API_FAKE_JOB_SERVICE_H_
#define MUSTER_CLIENT_API_FAKE_JOB_SERVICE_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::client {

// Thread-safe.
class FakeJobService : public v1::JobService::Service {
 public:
  // Adds or changes the job, with the next version. Watchers receive the job.
  void Put(v1::Job job);
  // Removes the job; watchers receive an error.
  void Remove(const std::string& job_id);
  void AddLog(const std::string& job_id, const v1::LogLine& line);
  void AddStep(const std::string& job_id, const v1::StepMetrics& step);
  // Ends all running streams with UNAVAILABLE, as if the coordinator died, or with another status.
  void BreakStreams(const grpc::Status& how = {grpc::StatusCode::UNAVAILABLE, "Socket closed"});
  // Sets a function that is called after each submission, without a lock, with the stored job.
  void OnSubmit(std::function<void(const v1::Job&)> react);
  // Sets the state of a job after a stop; CANCELLED by default.
  void StopLeadsTo(v1::Job::State state);
  // Sets the answer of ValidateJob. Submitted jobs get its warnings, too.
  void ValidateAnswers(v1::ValidateJobResponse response);
  // Sets how many of the next calls that change something are carried out but answered with
  // UNAVAILABLE, as if the coordinator died before its answer.
  void LoseAnswers(int count);
  // Sets how many of the next calls that change something are not carried out, and answered with
  // UNAVAILABLE.
  void LoseRequests(int count);
  // Sets how many of the next GetJob calls are answered with UNAVAILABLE.
  void LoseReads(int count);
  // The request ids of all calls that change something, in order.
  std::vector<std::string> requests() const;

  // The after_version of each WatchJob call that has begun.
  std::vector<uint64_t> watches() const;
  // Blocks until this many WatchJob calls have begun.
  void AwaitWatches(int count) const;

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest*, v1::Job*) override;
  grpc::Status ValidateJob(grpc::ServerContext*, const v1::ValidateJobRequest*,
                           v1::ValidateJobResponse*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::Job*) override;
  // Lists jobs by id, in pages of at most 2, so that clients must request further pages.
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse*) override;
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest*,
                        grpc::ServerWriter<v1::Job>*) override;
  grpc::Status StreamLogs(grpc::ServerContext*, const v1::StreamLogsRequest*,
                          grpc::ServerWriter<v1::LogLine>*) override;
  grpc::Status StreamMetrics(grpc::ServerContext*, const v1::StreamMetricsRequest*,
                             grpc::ServerWriter<v1::StepMetrics>*) override;
  grpc::Status StopJob(grpc::ServerContext*, const v1::StopJobRequest*, v1::Job*) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest*,
                         v1::DeleteJobResponse*) override;

 private:
  // Runs `act` once for each request id of a call that changes something. A repeat gets the first
  // answer.
  template <typename Response>
  grpc::Status Once(const std::string& request_id, Response* response,
                    const std::function<grpc::Status()>& act);
  grpc::Status Submit(const v1::SubmitJobRequest& submission, v1::Job* response);
  grpc::Status Stop(const std::string& job_id, v1::Job* response);
  grpc::Status Delete(const std::string& job_id, v1::DeleteJobResponse* response);

  mutable absl::Mutex mutex_;
  std::map<std::string, v1::Job> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<v1::LogLine>> logs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<v1::StepMetrics>> steps_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const v1::Job&)> on_submit_ ABSL_GUARDED_BY(mutex_);
  v1::Job::State stop_leads_to_ ABSL_GUARDED_BY(mutex_) = v1::Job::CANCELLED;
  v1::ValidateJobResponse validation_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> watches_ ABSL_GUARDED_BY(mutex_);
  int lost_answers_ ABSL_GUARDED_BY(mutex_) = 0;
  int lost_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  int lost_reads_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  // The answers given, serialized, by request id.
  std::map<std::string, std::string> answers_ ABSL_GUARDED_BY(mutex_);
  // The number of the present era. Streams that began in an older era end with `end_of_era_`.
  int era_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status end_of_era_ ABSL_GUARDED_BY(mutex_);
};

// A ClusterService with the nodes that a test gives it. Thread-safe.
class FakeClusterService : public v1::ClusterService::Service {
 public:
  void Put(v1::ListNodesResponse nodes) {
    absl::MutexLock lock(&mutex_);
    nodes_ = std::move(nodes);
  }
  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    absl::MutexLock lock(&mutex_);
    *response = nodes_;
    return grpc::Status::OK;
  }
  // Answers with the given node of the requested name, as DRAINING.
  grpc::Status DrainNode(grpc::ServerContext*, const v1::DrainNodeRequest* request,
                         v1::Node* response) override {
    absl::MutexLock lock(&mutex_);
    drain_ = *request;
    for (const v1::Node& node : nodes_.nodes()) {
      if (node.name() == request->node()) *response = node;
    }
    response->set_state(v1::Node::DRAINING);
    return grpc::Status::OK;
  }
  v1::DrainNodeRequest last_drain() {
    absl::MutexLock lock(&mutex_);
    return drain_;
  }
  // Sets the pieces of a backup, and how the stream ends.
  void PutBackup(std::vector<std::string> pieces, const grpc::Status& end = grpc::Status::OK) {
    absl::MutexLock lock(&mutex_);
    backup_ = std::move(pieces);
    backup_end_ = end;
  }
  grpc::Status Backup(grpc::ServerContext*, const v1::BackupRequest*,
                      grpc::ServerWriter<v1::BackupChunk>* writer) override {
    absl::MutexLock lock(&mutex_);
    for (const std::string& piece : backup_) {
      v1::BackupChunk chunk;
      chunk.set_data(piece);
      writer->Write(chunk);
    }
    return backup_end_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> backup_ ABSL_GUARDED_BY(mutex_);
  grpc::Status backup_end_ ABSL_GUARDED_BY(mutex_);
  v1::ListNodesResponse nodes_ ABSL_GUARDED_BY(mutex_);
  v1::DrainNodeRequest drain_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::client

#endif  // MUSTER_CLIENT_API_FAKE_JOB_SERVICE_H_
