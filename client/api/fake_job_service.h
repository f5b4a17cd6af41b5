// A JobService for tests of clients: over real gRPC, with jobs that the test moves.
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
  // The job appears, or changes, with the next version; watchers see it.
  void Put(v1::Job job);
  // The job is not there any more; those who watch it are told.
  void Remove(const std::string& job_id);
  void AddLog(const std::string& job_id, const v1::LogLine& line);
  void AddStep(const std::string& job_id, const v1::StepMetrics& step);
  // All running streams end with UNAVAILABLE, as when the coordinator dies; or with another status.
  void BreakStreams(const grpc::Status& how = {grpc::StatusCode::UNAVAILABLE, "Socket closed"});
  // Ran after each submission, without a lock, with the job as it was stored.
  void OnSubmit(std::function<void(const v1::Job&)> react);
  // What a stop makes of a job; CANCELLED unless told otherwise.
  void StopLeadsTo(v1::Job::State state);
  // Its warnings are those of submitted jobs, too.
  void ValidateAnswers(v1::ValidateJobResponse response);
  // So many of the next calls that change something act, but are answered with UNAVAILABLE, as when
  // the coordinator dies before its answer.
  void LoseAnswers(int count);
  // So many of the next calls that change something do not act and are answered with UNAVAILABLE.
  void LoseRequests(int count);
  // The request ids of all calls that change something, in their order.
  std::vector<std::string> requests() const;

  // How many WatchJob calls have begun, and the after_version of each.
  std::vector<uint64_t> watches() const;
  // Blocks until so many WatchJob calls have begun.
  void AwaitWatches(int count) const;

  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest*, v1::Job*) override;
  grpc::Status ValidateJob(grpc::ServerContext*, const v1::ValidateJobRequest*,
                           v1::ValidateJobResponse*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::Job*) override;
  // By id, in pages of at most 2, so that clients must turn them.
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
  // A call that changes something: `act` runs once for its request id, a repeat gets the first
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
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  // By request id: the answers given, serialized.
  std::map<std::string, std::string> answers_ ABSL_GUARDED_BY(mutex_);
  // Streams that began in an older era end, like this.
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
  // Answers with the node of that name among those it was given, as DRAINING.
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
  // The pieces of a backup, and how the stream ends.
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
