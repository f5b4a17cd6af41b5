#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/jobfile/check_files.h"
#include "common/jobfile/continued.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/caller.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/metrics_stream.h"
#include "coordinator/service/permit.h"
#include "coordinator/service/request.h"
#include "coordinator/service/retry.h"
#include "coordinator/service/services.h"
#include "coordinator/service/submission.h"
#include "coordinator/service/wire.h"
#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster::service {
namespace {

// Returns the files that are left when the job is deleted.
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
  // Returns the current state of the job. If the followed attempt has ended and a later attempt has
  // begun, returns the job's state at that end.
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
  // The followed attempt; 0 for the current attempt at the beginning of the stream.
  uint32_t attempt_;
  // Whether the end of the attempt was sent, and there is a later attempt.
  bool told_ = false;
  // The job's last state, if it was reached while an earlier state was being written.
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

// Fills in the next page of jobs in one of `states` (empty for all), newest first, with numbers
// below `below`.
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

class JobService final : public Admitting<v1::JobService::CallbackService> {
 public:
  explicit JobService(const ServiceParts& parts) : Admitting(parts.authorize), parts_(parts) {
    Admits("SubmitJob", &JobService::SubmitJob);
    Admits("ValidateJob", &JobService::ValidateJob);
    Admits("ParseJob", &JobService::ParseJob);
    Admits("GetJob", &JobService::GetJob);
    Admits("ListJobs", &JobService::ListJobs);
    Admits("WatchJob", &JobService::WatchJob);
    Admits("StreamLogs", &JobService::StreamLogs);
    Admits("StreamMetrics", &JobService::StreamMetrics);
    Admits("StopJob", &JobService::StopJob);
    Admits("PauseJob", &JobService::PauseJob);
    Admits("ResumeJob", &JobService::ResumeJob);
    Admits("RetryJob", &JobService::RetryJob);
    Admits("DeleteJob", &JobService::DeleteJob);
  }

 private:
  Reactor* SubmitJob(Context* context, const v1::SubmitJobRequest* request,
                     v1::Job* response) override {
    const v1::SpecProblems problems = ProblemsOf(*request, parts_.timing);
    if (!problems.problems().empty()) {
      return EndCall(context, InvalidSpec(problems), request->job_id());
    }
    cluster::Submission given =
        ToSubmission(*request, ContinueFromStart(parts_.engine, request->spec()));
    given.submitter = RequesterOf(context);
    const auto id = std::make_shared<std::string>();
    return ChangeAndAnswer(
        parts_.engine, context, request->job_id(),
        [=](cluster::Cluster& cluster, absl::Time now) -> absl::Status {
          cluster::Submission submission = given;
          ResolveStart(cluster, &submission);
          ASSIGN_OR_RETURN(*id, cluster.Submit(submission, now));
          return absl::OkStatus();
        },
        [=, this] { return Fill(*id, response); });
  }

  Reactor* ValidateJob(Context* context, const v1::ValidateJobRequest* request,
                       v1::ValidateJobResponse* response) override {
    v1::SpecProblems problems = ProblemsOf(request->spec(), parts_.timing);
    // The answer contains facts about files of this host. Only callers who may submit jobs may see
    // these facts.
    const bool may_submit = authorize()(CallerOf(*context), "/muster.v1.JobService/SubmitJob").ok();
    jobfile::Continued continued{
        .spec = request->spec(), .problems = {}, .taken = {}, .differing = {}};
    if (problems.problems().empty() && may_submit) {
      continued = ContinueFromStart(parts_.engine, request->spec());
      problems = continued.problems;
    }
    if (problems.problems().empty() && may_submit) {
      problems = jobfile::CheckOutputs(request->spec());
    }
    if (!problems.problems().empty()) {
      *response->mutable_problems() = problems.problems();
      return EndCall(context, absl::OkStatus());
    }
    for (const std::string& told : {continued.taken, continued.differing}) {
      if (!told.empty()) response->add_warnings(told);
    }
    *response->mutable_resolved() = jobspec::ResolveDefaults(continued.spec);
    return ReadAndAnswer(parts_.engine, context, "", [=, this] {
      const cluster::Cluster& cluster = parts_.engine->cluster();
      const v1::JobSpec& spec = response->resolved();
      const v1::SpecProblems start = ResolveStart(cluster, response->mutable_resolved());
      if (!start.problems().empty()) {
        response->clear_resolved();
        *response->mutable_problems() = start.problems();
        return absl::OkStatus();
      }
      const std::string warning = cluster.overview().TooBigFor(spec.world_size(), DeviceOf(spec));
      if (!warning.empty()) response->add_warnings(warning);
      return absl::OkStatus();
    });
  }

  Reactor* ParseJob(Context* context, const v1::ParseJobRequest* request,
                    v1::ParseJobResponse* response) override {
    auto parsed = service::ParseJob(*request);
    if (parsed.ok()) *response = *std::move(parsed);
    return EndCall(context, parsed.status());
  }

  Reactor* GetJob(Context* context, const v1::GetJobRequest* request, v1::Job* response) override {
    return ReadAndAnswer(parts_.engine, context, request->job_id(),
                         [=, this] { return Fill(request->job_id(), response); });
  }

  Reactor* ListJobs(Context* context, const v1::ListJobsRequest* request,
                    v1::ListJobsResponse* response) override {
    // The token is the number of the last job on the previous page.
    const auto page = PageOf(request->page_token(), request->page_size(), UINT64_MAX);
    if (!page.ok()) return EndCall(context, page.status());
    std::set<jobs::State> states;
    for (const int state : request->states()) {
      if (state == v1::Job::STATE_UNSPECIFIED || !v1::Job::State_IsValid(state)) {
        return EndCall(context, Refuse(absl::StatusCode::kInvalidArgument, "STATE_INVALID",
                                       absl::StrCat("states holds the number ", state,
                                                    ", which is not a state of a job"),
                                       {{"field", "states"}}));
      }
      states.insert(static_cast<jobs::State>(state));
    }
    return ReadAndAnswer(parts_.engine, context, "", [=, this, page = *page] {
      FillPage(parts_.engine->cluster(), states, page.token, page.size, response);
      return absl::OkStatus();
    });
  }

  Reactor* StopJob(Context* context, const v1::StopJobRequest* request,
                   v1::Job* response) override {
    v1::Command contents;
    contents.mutable_stop();
    const cluster::CommandRequest command = CommandOf(context, *request, contents);
    return ChangeAndAnswer(
        parts_.engine, context, request->job_id(),
        [=](cluster::Cluster& cluster, absl::Time now) {
          return cluster.Command(command, now).status();
        },
        [=, this] { return Fill(request->job_id(), response); });
  }

  Reactor* DeleteJob(Context* context, const v1::DeleteJobRequest* request,
                     v1::DeleteJobResponse* response) override {
    const auto answer = std::make_shared<std::string>();
    const std::string by = RequesterOf(context);
    return ChangeAndAnswer(
        parts_.engine, context, request->job_id(),
        [=](cluster::Cluster& cluster, absl::Time now) -> absl::Status {
          const jobs::Job* job = cluster.Find(request->job_id());
          ASSIGN_OR_RETURN(
              *answer, cluster.Delete({request->job_id(), request->request_id(),
                                       FingerprintOf("delete", *request),
                                       job == nullptr ? "" : Remains(*job).SerializeAsString(), by},
                                      now));
          return absl::OkStatus();
        },
        [=] {
          response->ParseFromString(*answer);
          return absl::OkStatus();
        },
        &Engine::RequestRoom);
  }

  Reactor* PauseJob(Context* context, const v1::PauseJobRequest* request,
                    v1::Operation* response) override {
    v1::Command contents;
    contents.mutable_pause();
    return PostCommand(parts_.engine, context, CommandOf(context, *request, contents), response);
  }

  Reactor* ResumeJob(Context* context, const v1::ResumeJobRequest* request,
                     v1::Operation* response) override {
    v1::Command contents;
    contents.mutable_resume();
    cluster::CommandRequest command = CommandOf(context, *request, contents);
    command.from_scratch = request->from_scratch();
    command.from = request->from();
    return PostCommand(parts_.engine, context, command, response);
  }

  Reactor* RetryJob(Context* context, const v1::RetryJobRequest* request,
                    v1::Job* response) override {
    v1::Command contents;
    contents.mutable_resume();
    cluster::CommandRequest prepared = CommandOf(context, *request, contents, "retry");
    const auto answer = ReadForRetry(parts_.engine, request->job_id());
    if (!answer.ok()) return EndCall(context, answer.status());
    const std::optional<jobs::Job>& read = *answer;
    if (read.has_value()) AddRetry(*read, *request, parts_.timing, &prepared);
    return ChangeAndAnswer(
        parts_.engine, context, request->job_id(),
        [=, this, read = read](cluster::Cluster& cluster, absl::Time now) {
          cluster::CommandRequest command = prepared;
          const jobs::Job* job = cluster.Find(request->job_id());
          // Another retry may have changed the job's settings meanwhile.
          if (read.has_value() && job != nullptr && job->spec != read->spec) {
            AddRetry(*job, *request, parts_.timing, &command);
          }
          return cluster.NextAttempt(command, now).status();
        },
        [=, this] { return Fill(request->job_id(), response); });
  }

  grpc::ServerWriteReactor<v1::Job>* WatchJob(Context* context,
                                              const v1::WatchJobRequest* request) override {
    return Open<WatchStream>(context, *request, "WatchJob", parts_.jobs);
  }

  grpc::ServerWriteReactor<v1::LogLine>* StreamLogs(Context* context,
                                                    const v1::StreamLogsRequest* request) override {
    return Open<LogStream>(context, *request, "StreamLogs", parts_.logs);
  }

  grpc::ServerWriteReactor<v1::StepMetrics>* StreamMetrics(
      Context* context, const v1::StreamMetricsRequest* request) override {
    return Open<MetricsStream>(context, *request, "StreamMetrics", parts_.steps);
  }

  // Fills in the current state of the job. NOT_FOUND if the job has just been deleted.
  absl::Status Fill(const std::string& job_id, v1::Job* response) const {
    const cluster::Cluster& cluster = parts_.engine->cluster();
    const jobs::Job* job = cluster.Find(job_id);
    if (job == nullptr) return NoSuchJob(job_id);
    *response = ToWire(*job, cluster);
    return absl::OkStatus();
  }

  template <typename Stream, typename Request>
  Stream* Open(const Context* context, const Request& request, const char* method,
               Followers* followers) {
    const Follows by{
        .peer = context->peer(),
        .permit = PermitOf(CallerOf(*context), absl::StrCat("/muster.v1.JobService/", method),
                           authorize())};
    auto stream = std::make_shared<Stream>(parts_.engine, followers, request, by);
    stream->Begin();
    return stream.get();
  }

  const ServiceParts parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewJobService(const ServiceParts& parts) {
  return std::make_unique<JobService>(parts);
}

}  // namespace muster::service
