#include "coordinator/service/job_service.h"

#include <deque>
#include <memory>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/continued.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/caller.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/metrics_stream.h"
#include "coordinator/service/parse_job.h"
#include "coordinator/service/permit.h"
#include "coordinator/service/request.h"
#include "coordinator/service/retry.h"
#include "coordinator/service/row_stream.h"
#include "coordinator/service/start_of_job.h"
#include "coordinator/service/submission.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

constexpr int kDefaultPage = 100;

cluster::CommandRequest StopRequest(const grpc::CallbackServerContext* context,
                                    const v1::StopJobRequest& request) {
  v1::Command contents;
  contents.mutable_stop();
  return CommandOf(context, request, contents);
}

// The files that are left when the job is deleted.
v1::DeleteJobResponse Remains(const jobs::Job& job) {
  v1::DeleteJobResponse response;
  response.set_job_id(job.id);
  for (const jobs::Checkpoint& checkpoint : job.checkpoints) {
    *response.add_checkpoints() = ToWire(checkpoint);
  }
  for (const jobs::Checkpoint& checkpoint : job.found_checkpoints) {
    *response.add_checkpoints() = ToWire(checkpoint);
  }
  response.set_exported_path(job.exported_path);
  return response;
}

class WatchStream : public FollowStream<v1::Job> {
 public:
  WatchStream(Engine* engine, Followers* followers, const v1::WatchJobRequest& request, Follows by)
      : FollowStream(engine, followers, request.job_id(), std::move(by)),
        sent_(request.after_version()),
        attempt_(request.attempt()) {}

 protected:
  absl::StatusOr<bool> Next(v1::Job* item) override {
    if (attempt_ == 0) attempt_ = job()->attempt;
    if (told_ || job()->version == sent_) return false;
    sent_ = job()->version;
    *item = Seen();
    told_ = job()->attempt > attempt_;
    return true;
  }
  bool Over() override { return told_ || job()->terminal(); }
  bool IsLast() override { return true; }
  void Remember() override {
    if (!last_.has_value() && (job()->terminal() || job()->attempt > attempt_)) last_ = Seen();
  }
  bool Rest(v1::Job* item) override {
    if (!last_.has_value()) return false;
    *item = *last_;
    return true;
  }

 private:
  // The job as it is now. If the followed attempt has ended and a later one has begun, the job as
  // it was at that end.
  v1::Job Seen() {
    v1::Job seen = ToWire(*job(), engine().cluster());
    for (const jobs::AttemptEnd& end : job()->ended_attempts) {
      if (end.attempt != attempt_) continue;
      seen.set_state(static_cast<v1::Job::State>(end.state));
      seen.set_state_reason(end.state_reason);
      seen.set_reason(end.reason_code);
      Set(seen.mutable_end_time(), end.end_time);
      seen.set_step(end.step);
      seen.set_attempt(end.attempt);
    }
    return seen;
  }

  uint64_t sent_;
  // The attempt that is followed; 0: the one that is current when the stream begins.
  uint32_t attempt_;
  // The end of the attempt was sent, and there is a later attempt.
  bool told_ = false;
  // The job's last state, if it was reached while an earlier one was being written.
  std::optional<v1::Job> last_;
};

class LogStream : public RowStream<v1::LogLine> {
 public:
  LogStream(Engine* engine, Followers* followers, const v1::StreamLogsRequest& request, Follows by)
      : RowStream(engine, followers, request.job_id(), std::move(by), request.follow()),
        after_(request.after_sequence()) {
    if (request.has_rank()) rank_ = request.rank();
  }

 protected:
  absl::StatusOr<std::deque<v1::LogLine>> ReadPage() override {
    ASSIGN_OR_RETURN(const auto rows,
                     engine().store().ReadLogs(job_id(), after_, rank_, kReadAhead));
    std::deque<v1::LogLine> page;
    for (const store::LogRow& row : rows) page.push_back(ToWire(row));
    if (!rows.empty()) after_ = rows.back().sequence;
    return page;
  }

 private:
  uint64_t after_;
  std::optional<uint32_t> rank_;
};

// Answers with the job as it is now, or with NOT_FOUND if it has just been deleted.
void Answer(const cluster::Cluster& cluster, const std::string& job_id, v1::Job* response,
            grpc::ServerUnaryReactor* reactor) {
  const jobs::Job* job = cluster.Find(job_id);
  if (job == nullptr) return reactor->Finish(ToWire(NoSuchJob(job_id)));
  *response = ToWire(*job, cluster);
  reactor->Finish(grpc::Status::OK);
}

// The next page of jobs in one of `states` (empty: all), newest first: those with numbers below
// `below`.
void FillPage(const cluster::Cluster& cluster, const std::set<jobs::State>& states, uint64_t below,
              int size, v1::ListJobsResponse* page) {
  const auto& submitted = cluster.submitted();
  uint64_t last = 0;
  size_t bytes = 0;
  for (auto next = submitted.lower_bound(below); next != submitted.begin();) {
    --next;
    const jobs::Job& job = *cluster.Find(next->second);
    if (!states.empty() && !states.contains(job.state())) continue;
    if (page->jobs_size() == size || bytes > kLimits.page_bytes) {
      page->set_next_page_token(absl::StrCat(last));
      return;
    }
    *page->add_jobs() = ToWire(job, cluster);
    bytes += page->jobs(page->jobs_size() - 1).ByteSizeLong();
    last = next->first;
  }
}

template <typename Stream, typename Request>
Stream* Open(Engine* engine, Followers* followers, const Request& request,
             const grpc::CallbackServerContext& context, Permit permit) {
  auto stream = std::make_shared<Stream>(
      engine, followers, request, Follows{.peer = context.peer(), .permit = std::move(permit)});
  stream->Begin();
  return stream.get();
}

}  // namespace

grpc::ServerUnaryReactor* JobService::SubmitJob(grpc::CallbackServerContext* context,
                                                const v1::SubmitJobRequest* request,
                                                v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  const v1::SpecProblems problems = ProblemsOf(*request, timing_);
  if (!problems.problems().empty()) {
    reactor->Finish(ToWire(InvalidSpec(problems), request->job_id()));
    return reactor;
  }
  auto id = std::make_shared<absl::StatusOr<std::string>>();
  engine_->Request(
      [id, given = ToSubmission(*request, ContinueFromStart(engine_, request->spec())),
       submitter = RequesterOf(context)](cluster::Cluster& cluster, absl::Time now) {
        cluster::Submission submission = given;
        submission.submitter = submitter;
        ResolveStart(cluster, &submission);
        *id = cluster.Submit(submission, now);
      },
      [=, this](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        if (!id->ok()) return reactor->Finish(ToWire(id->status(), request->job_id()));
        Answer(engine_->cluster(), **id, response, reactor);
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ValidateJob(grpc::CallbackServerContext* context,
                                                  const v1::ValidateJobRequest* request,
                                                  v1::ValidateJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  v1::SpecProblems problems = ProblemsOf(request->spec(), timing_);
  // The answer tells about files of this host, which only those may know who could write them.
  const bool may_submit = authorize()(CallerOf(*context), "/muster.v1.JobService/SubmitJob").ok();
  jobfile::Continued continued{
      .spec = request->spec(), .problems = {}, .taken = {}, .differing = {}};
  if (problems.problems().empty() && may_submit) {
    continued = ContinueFromStart(engine_, request->spec());
    problems = continued.problems;
  }
  if (problems.problems().empty() && may_submit) problems = jobfile::CheckOutputs(request->spec());
  if (!problems.problems().empty()) {
    *response->mutable_problems() = problems.problems();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  for (const std::string& told : {continued.taken, continued.differing}) {
    if (!told.empty()) response->add_warnings(told);
  }
  *response->mutable_resolved() = jobspec::ResolveDefaults(continued.spec);
  engine_->Read([=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    const v1::JobSpec& spec = response->resolved();
    const v1::SpecProblems start = ResolveStart(engine_->cluster(), response->mutable_resolved());
    if (!start.problems().empty()) {
      response->clear_resolved();
      *response->mutable_problems() = start.problems();
      return reactor->Finish(grpc::Status::OK);
    }
    const std::string warning =
        engine_->cluster().overview().TooBigFor(spec.world_size(), DeviceOf(spec));
    if (!warning.empty()) response->add_warnings(warning);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ParseJob(grpc::CallbackServerContext* context,
                                               const v1::ParseJobRequest* request,
                                               v1::ParseJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  auto parsed = service::ParseJob(*request);
  if (parsed.ok()) *response = *std::move(parsed);
  reactor->Finish(ToWire(parsed.status()));
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request, v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  engine_->Read([=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    Answer(engine_->cluster(), request->job_id(), response, reactor);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  auto* reactor = context->DefaultReactor();
  // The token is the number of the last job on the previous page.
  uint64_t below = UINT64_MAX;
  if (!request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &below)) {
    reactor->Finish(ToWire(BadPageToken(request->page_token())));
    return reactor;
  }
  if (const absl::Status bad = CheckPageSize(request->page_size()); !bad.ok()) {
    reactor->Finish(ToWire(bad));
    return reactor;
  }
  std::set<jobs::State> states;
  for (const int state : request->states()) {
    if (state == v1::Job::STATE_UNSPECIFIED || !v1::Job::State_IsValid(state)) {
      reactor->Finish(ToWire(
          Refuse(absl::StatusCode::kInvalidArgument, "STATE_INVALID",
                 absl::StrCat("states holds the number ", state, ", which is not a state of a job"),
                 {{"field", "states"}})));
      return reactor;
    }
    states.insert(static_cast<jobs::State>(state));
  }
  const int size = request->page_size() == 0 ? kDefaultPage : request->page_size();
  engine_->Read([=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    FillPage(engine_->cluster(), states, below, size, response);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::StopJob(grpc::CallbackServerContext* context,
                                              const v1::StopJobRequest* request,
                                              v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  auto result = std::make_shared<absl::Status>();
  engine_->Request(
      [=](cluster::Cluster& cluster, absl::Time now) {
        *result = cluster.Command(StopRequest(context, *request), now).status();
      },
      [=, this](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        if (!result->ok()) return reactor->Finish(ToWire(*result, request->job_id()));
        Answer(engine_->cluster(), request->job_id(), response, reactor);
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::DeleteJob(grpc::CallbackServerContext* context,
                                                const v1::DeleteJobRequest* request,
                                                v1::DeleteJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  auto answer = std::make_shared<absl::StatusOr<std::string>>();
  const std::string by = RequesterOf(context);
  engine_->RequestRoom(
      [=](cluster::Cluster& cluster, absl::Time now) {
        const jobs::Job* job = cluster.Find(request->job_id());
        *answer = cluster.Delete(
            {request->job_id(), request->request_id(), FingerprintOf("delete", *request),
             job == nullptr ? "" : Remains(*job).SerializeAsString(), by},
            now);
      },
      [=](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        if (!answer->ok()) return reactor->Finish(ToWire(answer->status(), request->job_id()));
        response->ParseFromString(**answer);
        reactor->Finish(grpc::Status::OK);
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::PauseJob(grpc::CallbackServerContext* context,
                                               const v1::PauseJobRequest* request,
                                               v1::Operation* response) {
  v1::Command contents;
  contents.mutable_pause();
  return PostCommand(engine_, CommandOf(context, *request, contents), response,
                     context->DefaultReactor());
}

grpc::ServerUnaryReactor* JobService::ResumeJob(grpc::CallbackServerContext* context,
                                                const v1::ResumeJobRequest* request,
                                                v1::Operation* response) {
  v1::Command contents;
  contents.mutable_resume();
  cluster::CommandRequest command = CommandOf(context, *request, contents);
  command.from_scratch = request->from_scratch();
  command.from = request->from();
  return PostCommand(engine_, command, response, context->DefaultReactor());
}

grpc::ServerUnaryReactor* JobService::RetryJob(grpc::CallbackServerContext* context,
                                               const v1::RetryJobRequest* request,
                                               v1::Job* response) {
  v1::Command contents;
  contents.mutable_resume();
  auto* reactor = context->DefaultReactor();
  auto result = std::make_shared<absl::Status>();
  cluster::CommandRequest prepared = CommandOf(context, *request, contents, "retry");
  const auto answer = ReadForRetry(engine_, request->job_id());
  if (!answer.ok()) {
    reactor->Finish(ToWire(answer.status()));
    return reactor;
  }
  const std::optional<jobs::Job>& read = *answer;
  if (read.has_value()) AddRetry(*read, *request, timing_, &prepared);
  engine_->Request(
      [=, this, read = read](cluster::Cluster& cluster, absl::Time now) {
        cluster::CommandRequest command = prepared;
        const jobs::Job* job = cluster.Find(request->job_id());
        // Another retry has changed its settings meanwhile.
        if (read.has_value() && job != nullptr && job->spec != read->spec) {
          AddRetry(*job, *request, timing_, &command);
        }
        *result = cluster.NextAttempt(command, now).status();
      },
      [=, this](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        if (!result->ok()) return reactor->Finish(ToWire(*result, request->job_id()));
        Answer(engine_->cluster(), request->job_id(), response, reactor);
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::Job>* JobService::WatchJob(grpc::CallbackServerContext* context,
                                                        const v1::WatchJobRequest* request) {
  return Open<WatchStream>(
      engine_, jobs_, *request, *context,
      PermitOf(CallerOf(*context), "/muster.v1.JobService/WatchJob", authorize()));
}

grpc::ServerWriteReactor<v1::LogLine>* JobService::StreamLogs(
    grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) {
  return Open<LogStream>(
      engine_, logs_, *request, *context,
      PermitOf(CallerOf(*context), "/muster.v1.JobService/StreamLogs", authorize()));
}

grpc::ServerWriteReactor<v1::StepMetrics>* JobService::StreamMetrics(
    grpc::CallbackServerContext* context, const v1::StreamMetricsRequest* request) {
  return Open<MetricsStream>(
      engine_, steps_, *request, *context,
      PermitOf(CallerOf(*context), "/muster.v1.JobService/StreamMetrics", authorize()));
}

}  // namespace muster::service
