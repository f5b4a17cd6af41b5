#include "client/api/fake_job_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/error.h"

namespace muster::client {
namespace {

bool Ended(const v1::Job& job) {
  return job.state() == v1::Job::SUCCEEDED || job.state() == v1::Job::FAILED ||
         job.state() == v1::Job::CANCELLED;
}

grpc::Status NotFound(const std::string& id) {
  return ToGrpc(MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                          absl::StrCat("there is no job '", id, "'")));
}

const grpc::Status kBroken(grpc::StatusCode::UNAVAILABLE, "Socket closed");

}  // namespace

void FakeJobService::Put(v1::Job job) {
  absl::MutexLock lock(&mutex_);
  job.set_version(jobs_[job.id()].version() + 1);
  jobs_[job.id()] = std::move(job);
}

void FakeJobService::Remove(const std::string& job_id) {
  absl::MutexLock lock(&mutex_);
  jobs_.erase(job_id);
}

void FakeJobService::AddLog(const std::string& job_id, const v1::LogLine& line) {
  absl::MutexLock lock(&mutex_);
  logs_[job_id].push_back(line);
}

void FakeJobService::AddStep(const std::string& job_id, const v1::StepMetrics& step) {
  absl::MutexLock lock(&mutex_);
  steps_[job_id].push_back(step);
}

void FakeJobService::BreakStreams(const grpc::Status& how) {
  absl::MutexLock lock(&mutex_);
  ++era_;
  end_of_era_ = how;
}

void FakeJobService::OnSubmit(std::function<void(const v1::Job&)> react) {
  absl::MutexLock lock(&mutex_);
  on_submit_ = std::move(react);
}

void FakeJobService::StopLeadsTo(v1::Job::State state) {
  absl::MutexLock lock(&mutex_);
  stop_leads_to_ = state;
}

void FakeJobService::ValidateAnswers(v1::ValidateJobResponse response) {
  absl::MutexLock lock(&mutex_);
  validation_ = std::move(response);
}

std::vector<uint64_t> FakeJobService::watches() const {
  absl::MutexLock lock(&mutex_);
  return watches_;
}

void FakeJobService::AwaitWatches(int count) const {
  const auto begun = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return watches_.size() >= static_cast<size_t>(count);
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&begun));
}

void FakeJobService::LoseAnswers(int count) {
  absl::MutexLock lock(&mutex_);
  lost_answers_ = count;
}

void FakeJobService::LoseRequests(int count) {
  absl::MutexLock lock(&mutex_);
  lost_requests_ = count;
}

void FakeJobService::LoseReads(int count) {
  absl::MutexLock lock(&mutex_);
  lost_reads_ = count;
}

std::vector<std::string> FakeJobService::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

template <typename Response>
grpc::Status FakeJobService::Once(const std::string& request_id, Response* response,
                                  const std::function<grpc::Status()>& act) {
  {
    absl::MutexLock lock(&mutex_);
    requests_.push_back(request_id);
    if (lost_requests_ > 0) {
      --lost_requests_;
      return kBroken;
    }
    const auto known = answers_.find(request_id);
    if (known != answers_.end()) {
      response->ParseFromString(known->second);
      if (lost_answers_ == 0) return grpc::Status::OK;
      --lost_answers_;
      return kBroken;
    }
  }
  const grpc::Status status = act();
  absl::MutexLock lock(&mutex_);
  if (status.ok()) answers_[request_id] = response->SerializeAsString();
  if (lost_answers_ == 0) return status;
  --lost_answers_;
  return kBroken;
}

grpc::Status FakeJobService::SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest* request,
                                       v1::Job* response) {
  return Once(request->request_id(), response, [&] { return Submit(*request, response); });
}

grpc::Status FakeJobService::Submit(const v1::SubmitJobRequest& submission, v1::Job* response) {
  std::function<void(const v1::Job&)> react;
  {
    absl::MutexLock lock(&mutex_);
    const std::string id = submission.job_id().empty()
                               ? absl::StrCat(submission.spec().name(), "-1")
                               : submission.job_id();
    if (jobs_.count(id) > 0) {
      return ToGrpc(MakeError(absl::StatusCode::kAlreadyExists, "JOB_ALREADY_EXISTS",
                              absl::StrCat("there already is a job '", id, "'")));
    }
    v1::Job& job = jobs_[id];
    job.set_id(id);
    job.set_state(v1::Job::QUEUED);
    job.set_version(1);
    *job.mutable_spec() = submission.spec();
    *job.mutable_warnings() = validation_.warnings();
    *response = job;
    react = on_submit_;
  }
  if (react) react(*response);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ValidateJob(grpc::ServerContext*, const v1::ValidateJobRequest*,
                                         v1::ValidateJobResponse* response) {
  absl::MutexLock lock(&mutex_);
  *response = validation_;
  return grpc::Status::OK;
}

grpc::Status FakeJobService::GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                                    v1::Job* response) {
  absl::MutexLock lock(&mutex_);
  if (lost_reads_ > 0) {
    --lost_reads_;
    return {grpc::StatusCode::UNAVAILABLE, "Socket closed"};
  }
  const auto job = jobs_.find(request->job_id());
  if (job == jobs_.end()) return NotFound(request->job_id());
  *response = job->second;
  return grpc::Status::OK;
}

grpc::Status FakeJobService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                      v1::ListJobsResponse* response) {
  absl::MutexLock lock(&mutex_);
  const auto wanted = [request](const v1::Job& job) {
    return request->states().empty() ||
           std::count(request->states().begin(), request->states().end(), job.state()) > 0;
  };
  const int size = request->page_size() == 1 ? 1 : 2;
  for (auto job = jobs_.upper_bound(request->page_token()); job != jobs_.end(); ++job) {
    if (!wanted(job->second)) continue;
    if (response->jobs_size() == size) {
      response->set_next_page_token(response->jobs(size - 1).id());
      break;
    }
    *response->add_jobs() = job->second;
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobService::WatchJob(grpc::ServerContext* context,
                                      const v1::WatchJobRequest* request,
                                      grpc::ServerWriter<v1::Job>* writer) {
  const std::string id = request->job_id();
  uint64_t version = request->after_version();
  int era;
  {
    absl::MutexLock lock(&mutex_);
    era = era_;
    watches_.push_back(version);
    if (jobs_.count(id) == 0) return NotFound(id);
  }
  while (true) {
    v1::Job job;
    {
      const auto news = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return era_ != era || jobs_.count(id) == 0 || jobs_.at(id).version() > version ||
               context->IsCancelled();
      };
      absl::MutexLock lock(&mutex_);
      // A cancelled call wakes no waiting thread, so this loop checks again and again.
      while (!mutex_.AwaitWithTimeout(absl::Condition(&news), absl::Milliseconds(20))) {
      }
      if (era_ != era) return end_of_era_;
      if (jobs_.count(id) == 0) return NotFound(id);
      job = jobs_.at(id);
    }
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    version = job.version();
    writer->Write(job);
    if (Ended(job)) return grpc::Status::OK;
  }
}

grpc::Status FakeJobService::StreamLogs(grpc::ServerContext* context,
                                        const v1::StreamLogsRequest* request,
                                        grpc::ServerWriter<v1::LogLine>* writer) {
  const std::string id = request->job_id();
  absl::MutexLock lock(&mutex_);
  if (jobs_.count(id) == 0) return NotFound(id);
  const int era = era_;
  for (size_t sent = 0;; ++sent) {
    const auto more = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return logs_[id].size() > sent || !request->follow() || Ended(jobs_.at(id)) || era_ != era ||
             context->IsCancelled();
    };
    // A cancelled call wakes no waiting thread (see WatchJob).
    while (!mutex_.AwaitWithTimeout(absl::Condition(&more), absl::Milliseconds(20))) {
    }
    if (era_ != era) return end_of_era_;
    if (logs_[id].size() <= sent) return grpc::Status::OK;
    const v1::LogLine& line = logs_[id][sent];
    if (line.sequence() <= request->after_sequence()) continue;
    if (!request->has_rank() || line.rank() == request->rank()) writer->Write(line);
  }
}

grpc::Status FakeJobService::StreamMetrics(grpc::ServerContext* context,
                                           const v1::StreamMetricsRequest* request,
                                           grpc::ServerWriter<v1::StepMetrics>* writer) {
  const std::string id = request->job_id();
  absl::MutexLock lock(&mutex_);
  if (jobs_.count(id) == 0) return NotFound(id);
  const int era = era_;
  for (size_t sent = 0;; ++sent) {
    const auto more = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return steps_[id].size() > sent || !request->follow() || Ended(jobs_.at(id)) || era_ != era ||
             context->IsCancelled();
    };
    // See WatchJob: a cancelled call wakes no thread.
    while (!mutex_.AwaitWithTimeout(absl::Condition(&more), absl::Milliseconds(20))) {
    }
    if (era_ != era) return end_of_era_;
    if (steps_[id].size() <= sent) return grpc::Status::OK;
    const v1::StepMetrics& entry = steps_[id][sent];
    const uint64_t from = entry.has_validation() ? request->from_validation()
                          : entry.has_test()     ? request->from_test()
                                                 : request->from_step();
    if (entry.step() >= from) writer->Write(entry);
  }
}

grpc::Status FakeJobService::StopJob(grpc::ServerContext*, const v1::StopJobRequest* request,
                                     v1::Job* response) {
  return Once(request->request_id(), response, [&] { return Stop(request->job_id(), response); });
}

grpc::Status FakeJobService::DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                                       v1::DeleteJobResponse* response) {
  return Once(request->request_id(), response, [&] { return Delete(request->job_id(), response); });
}

grpc::Status FakeJobService::Delete(const std::string& job_id, v1::DeleteJobResponse* response) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return NotFound(job_id);
  const v1::Job& job = found->second;
  if (!Ended(job)) {
    return ToGrpc(MakeError(absl::StatusCode::kFailedPrecondition, "JOB_NOT_ENDED",
                            absl::StrCat("job '", job_id, "' has not ended: stop it first")));
  }
  response->set_job_id(job_id);
  *response->mutable_checkpoints() = job.checkpoints();
  response->set_exported_path(job.exported_path());
  jobs_.erase(found);
  return grpc::Status::OK;
}

grpc::Status FakeJobService::Stop(const std::string& job_id, v1::Job* response) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_id);
  if (found == jobs_.end()) return NotFound(job_id);
  v1::Job& job = found->second;
  if (Ended(job)) {
    return ToGrpc(MakeError(absl::StatusCode::kFailedPrecondition, "JOB_ALREADY_ENDED",
                            absl::StrCat("job '", job.id(), "' has ended")));
  }
  job.set_state(stop_leads_to_);
  job.set_version(job.version() + 1);
  *response = job;
  return grpc::Status::OK;
}

}  // namespace muster::client
