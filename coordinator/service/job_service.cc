#include "coordinator/service/job_service.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <xxhash.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1000;
// Rows read from the store at a time.
constexpr size_t kReadAhead = 256;

absl::Status NoSuchJob(const std::string& id) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                absl::StrCat("there is no job '", id, "'"));
}

// What makes two requests the same: the call and its contents without the request id.
std::string Fingerprint(const std::string& call, const std::string& contents) {
  const XXH128_hash_t hash = XXH3_128bits(contents.data(), contents.size());
  return absl::StrFormat("%s:%016x%016x", call, hash.high64, hash.low64);
}

// Equal messages give equal bytes; SerializeAsString puts maps in any order.
std::string SameBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

bool IsJobId(const std::string& id) {
  return id.size() <= 63 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

v1::SpecProblems ProblemsOf(const v1::SubmitJobRequest& request) {
  v1::SpecProblems problems = jobspec::ValidateSpec(request.spec());
  if (!IsJobId(request.job_id())) {
    auto* problem = problems.add_problems();
    problem->set_path("job_id");
    problem->set_message(absl::StrCat("'", request.job_id(),
                                      "': expected 1 to 63 of the characters a-z, 0-9 and -"));
  }
  return problems;
}

cluster::Submission ToSubmission(const v1::SubmitJobRequest& request) {
  const v1::JobSpec spec = jobspec::ResolveDefaults(request.spec());
  v1::SubmitJobRequest contents = request;
  contents.clear_request_id();
  return {.job_id = request.job_id(),
          .name = spec.name(),
          .request_id = request.request_id(),
          .fingerprint = Fingerprint("submit", SameBytes(contents)),
          .spec = spec.SerializeAsString(),
          .plan = {.world_size = spec.world_size(),
                   .total_steps = jobspec::TotalSteps(spec),
                   .max_restarts = spec.restart().max_restarts(),
                   .keep_checkpoints = spec.checkpoint().keep()}};
}

class WatchStream : public FollowStream<v1::Job> {
 public:
  WatchStream(Engine* engine, Followers* followers, const v1::WatchJobRequest& request)
      : FollowStream(engine, followers, request.job_id()), sent_(request.after_version()) {}

 protected:
  absl::StatusOr<bool> Next(v1::Job* item) override {
    if (job()->version == sent_) return false;
    sent_ = job()->version;
    *item = ToWire(*job(), engine().cluster());
    return true;
  }
  bool Over() override { return job()->terminal(); }

 private:
  uint64_t sent_;
};

// Rows of the store, in pages, then those that come.
template <typename T, typename Row>
class RowStream : public FollowStream<T> {
 public:
  RowStream(Engine* engine, Followers* followers, const std::string& job, bool follow)
      : FollowStream<T>(engine, followers, job), follow_(follow) {}

 protected:
  virtual absl::StatusOr<std::vector<Row>> Read() = 0;

  absl::StatusOr<bool> Next(T* item) override {
    if (page_.empty()) {
      auto rows = Read();
      if (!rows.ok()) return rows.status();
      page_.assign(rows->begin(), rows->end());
    }
    if (page_.empty()) return false;
    *item = ToWire(page_.front());
    page_.pop_front();
    return true;
  }
  bool Over() override { return !follow_ || this->job()->terminal(); }

 private:
  const bool follow_;
  std::deque<Row> page_;
};

class LogStream : public RowStream<v1::LogLine, store::LogRow> {
 public:
  LogStream(Engine* engine, Followers* followers, const v1::StreamLogsRequest& request)
      : RowStream(engine, followers, request.job_id(), request.follow()),
        after_(request.after_sequence()) {
    if (request.has_rank()) rank_ = request.rank();
  }

 protected:
  absl::StatusOr<std::vector<store::LogRow>> Read() override {
    auto rows = engine().store().ReadLogs(job_id(), after_, rank_, kReadAhead);
    if (rows.ok() && !rows->empty()) after_ = rows->back().sequence;
    return rows;
  }

 private:
  uint64_t after_;
  std::optional<uint32_t> rank_;
};

class StepStream : public RowStream<v1::StepMetrics, store::StepRow> {
 public:
  StepStream(Engine* engine, Followers* followers, const v1::StreamMetricsRequest& request)
      : RowStream(engine, followers, request.job_id(), request.follow()),
        from_(request.from_step()) {}

 protected:
  absl::StatusOr<std::vector<store::StepRow>> Read() override {
    auto rows = engine().store().ReadSteps(job_id(), from_, kReadAhead);
    if (rows.ok() && !rows->empty()) from_ = rows->back().step + 1;
    return rows;
  }

 private:
  uint64_t from_;
};

template <typename Stream, typename Request>
Stream* Open(Engine* engine, Followers* followers, const Request& request) {
  auto stream = std::make_shared<Stream>(engine, followers, request);
  stream->Begin();
  return stream.get();
}

}  // namespace

grpc::ServerUnaryReactor* JobService::SubmitJob(grpc::CallbackServerContext* context,
                                                const v1::SubmitJobRequest* request,
                                                v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  const v1::SpecProblems problems = ProblemsOf(*request);
  if (!problems.problems().empty()) {
    absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, "JOB_SPEC_INVALID",
                                    jobspec::FormatProblems(problems));
    AttachProblems(&status, problems);
    reactor->Finish(ToGrpc(status));
    return reactor;
  }
  auto id = std::make_shared<absl::StatusOr<std::string>>();
  engine_->Post(
      [id, submission = ToSubmission(*request)](cluster::Cluster& cluster, absl::Time now) {
        *id = cluster.Submit(submission, now);
      },
      [=, this](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        if (!id->ok()) return reactor->Finish(ToWire(id->status()));
        *response = ToWire(*engine_->cluster().Find(**id), engine_->cluster());
        reactor->Finish(grpc::Status::OK);
      });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ValidateJob(grpc::CallbackServerContext* context,
                                                  const v1::ValidateJobRequest* request,
                                                  v1::ValidateJobResponse* response) {
  auto* reactor = context->DefaultReactor();
  const v1::SpecProblems problems = jobspec::ValidateSpec(request->spec());
  if (!problems.problems().empty()) {
    *response->mutable_problems() = problems.problems();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  *response->mutable_resolved() = jobspec::ResolveDefaults(request->spec());
  engine_->Post(nullptr, [=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    const jobs::Slots slots = engine_->cluster().OfferedSlots();
    const uint32_t needed = response->resolved().world_size();
    if (needed > slots.offered()) response->add_warnings(slots.Shortage(needed));
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::GetJob(grpc::CallbackServerContext* context,
                                             const v1::GetJobRequest* request, v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  engine_->Post(nullptr, [=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    const jobs::Job* job = engine_->cluster().Find(request->job_id());
    if (job == nullptr) return reactor->Finish(ToWire(NoSuchJob(request->job_id())));
    *response = ToWire(*job, engine_->cluster());
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::ListJobs(grpc::CallbackServerContext* context,
                                               const v1::ListJobsRequest* request,
                                               v1::ListJobsResponse* response) {
  auto* reactor = context->DefaultReactor();
  // The token is the number of the last job of the page before.
  uint64_t below = UINT64_MAX;
  if (!request->page_token().empty() && !absl::SimpleAtoi(request->page_token(), &below)) {
    reactor->Finish(ToWire(absl::InvalidArgumentError(
        absl::StrCat("page_token '", request->page_token(), "' is not one of this server's"))));
    return reactor;
  }
  if (request->page_size() < 0 || request->page_size() > kMaxPage) {
    reactor->Finish(ToWire(absl::InvalidArgumentError(
        absl::StrCat("page_size ", request->page_size(), ": expected 1 to ", kMaxPage))));
    return reactor;
  }
  const int size = request->page_size() == 0 ? kDefaultPage : request->page_size();
  engine_->Post(nullptr, [=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(ToWire(committed));
    const cluster::Cluster& cluster = engine_->cluster();
    auto next = cluster.submitted().lower_bound(below);
    while (next != cluster.submitted().begin() && response->jobs_size() < size) {
      --next;
      *response->add_jobs() = ToWire(*cluster.Find(next->second), cluster);
    }
    if (next != cluster.submitted().begin() && response->jobs_size() > 0) {
      response->set_next_page_token(absl::StrCat(next->first));
    }
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* JobService::StopJob(grpc::CallbackServerContext* context,
                                              const v1::StopJobRequest* request,
                                              v1::Job* response) {
  auto* reactor = context->DefaultReactor();
  auto result = std::make_shared<absl::Status>();
  engine_->Post(
      [=](cluster::Cluster& cluster, absl::Time now) {
        *result = cluster.Stop(request->job_id(), request->request_id(),
                               Fingerprint("stop", request->job_id()), now);
      },
      [=, this](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        if (!result->ok()) return reactor->Finish(ToWire(*result));
        *response = ToWire(*engine_->cluster().Find(request->job_id()), engine_->cluster());
        reactor->Finish(grpc::Status::OK);
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::Job>* JobService::WatchJob(grpc::CallbackServerContext*,
                                                        const v1::WatchJobRequest* request) {
  return Open<WatchStream>(engine_, jobs_, *request);
}

grpc::ServerWriteReactor<v1::LogLine>* JobService::StreamLogs(
    grpc::CallbackServerContext*, const v1::StreamLogsRequest* request) {
  return Open<LogStream>(engine_, logs_, *request);
}

grpc::ServerWriteReactor<v1::StepMetrics>* JobService::StreamMetrics(
    grpc::CallbackServerContext*, const v1::StreamMetricsRequest* request) {
  return Open<StepStream>(engine_, steps_, *request);
}

}  // namespace muster::service
