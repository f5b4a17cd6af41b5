#include "coordinator/service/request.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/jobspec/jobspec.h"
#include "common/printable/printable.h"
#include "common/rpc/caller.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

constexpr int kDefaultPage = 100;

// Returns equal bytes for equal messages. SerializeAsString writes maps in any order.
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

absl::Status Lacks(const char* reason, const std::string& message) {
  return Refuse(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status Check(const v1::JobSpec& spec, const std::string& job, int need) {
  switch (need) {
    case v1::CommandRule::TRAINING:
    case v1::CommandRule::OPTIMIZER:
      if (spec.has_optimizer()) return absl::OkStatus();
      return Lacks("NO_OPTIMIZER", absl::StrCat("job '", job,
                                                "' trains nothing: its job file has no "
                                                "`optimizer`"));
    case v1::CommandRule::CHECKPOINTS:
      if (spec.has_checkpoint()) return absl::OkStatus();
      return Lacks(
          "NO_CHECKPOINTS",
          absl::StrCat("job '", job,
                       "' has no place for checkpoints: its job file has no `checkpoint`"));
    case v1::CommandRule::TOKENS:
      if (jobspec::MayGenerate(spec.model())) return absl::OkStatus();
      return Lacks("CANNOT_GENERATE",
                   absl::StrCat("the model of job '", job,
                                "' cannot continue a prompt: it is none of gpt2, llama, hf and "
                                "exported"));
    default:
      return absl::OkStatus();
  }
}

}  // namespace

std::string RequesterOf(const grpc::CallbackServerContext* context) {
  return ToString(CallerOf(*context));
}

std::string LabelOf(const grpc::CallbackServerContext* context, const std::string& requested_by) {
  return WhoAsked(RequesterOf(context), requested_by);
}

std::string FingerprintOf(const std::string& call, const google::protobuf::Message& request) {
  const std::unique_ptr<google::protobuf::Message> contents(request.New());
  contents->CopyFrom(request);
  for (const char* name : {"request_id", "requested_by"}) {
    const auto* field = contents->GetDescriptor()->FindFieldByName(name);
    if (field != nullptr) contents->GetReflection()->ClearField(contents.get(), field);
  }
  const std::string bytes = SameBytes(*contents);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrFormat("%s:%016x%016x", call, hash.high64, hash.low64);
}

absl::StatusOr<AskedPage> PageOf(const std::string& token, int size, uint64_t first) {
  AskedPage page{.token = first, .size = size == 0 ? kDefaultPage : size};
  if (!token.empty() && !absl::SimpleAtoi(token, &page.token)) {
    return Refuse(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID",
                  absl::StrCat("page_token '", token,
                               "' does not come from this coordinator; leave it out to begin with "
                               "the first page"),
                  {{"field", "page_token"}});
  }
  if (size >= 0 && size <= kLimits.page_size) return page;
  return Refuse(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_INVALID",
                absl::StrCat("page_size ", size, ": expected 1 to ", kLimits.page_size),
                {{"field", "page_size"}, {"limit", absl::StrCat(kLimits.page_size)}});
}

v1::JobSpec SpecOf(const jobs::Job& job) {
  v1::JobSpec spec;
  spec.ParseFromString(job.spec);
  return spec;
}

absl::Status CheckNeeds(const jobs::Job& job, v1::Operation::Kind kind) {
  const v1::CommandRule& rule = commands::RuleOf(kind);
  if (rule.needs().empty()) return absl::OkStatus();
  const v1::JobSpec spec = SpecOf(job);
  for (const int need : rule.needs()) RETURN_IF_ERROR(Check(spec, job.id, need));
  return absl::OkStatus();
}

absl::Status FillOperation(const cluster::Cluster& cluster, const std::string& job_id,
                           uint64_t number, v1::Operation* response) {
  const jobs::Job* job = cluster.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  const commands::Command* command = job->commands.Find(number);
  if (command == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "OPERATION_NOT_FOUND",
                  absl::StrCat("there is no operation '", OperationName(job_id, number), "'"),
                  {{"job", job_id}, {"operation", OperationName(job_id, number)}});
  }
  *response = ToWire(*job, *command, cluster);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* EndCall(grpc::CallbackServerContext* context, const absl::Status& status,
                                  const std::string& job_id) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(ToWire(status, job_id));
  return reactor;
}

grpc::ServerUnaryReactor* ReadAndAnswer(Engine* engine, grpc::CallbackServerContext* context,
                                        const std::string& job_id, const Answer& answer) {
  auto* reactor = context->DefaultReactor();
  engine->Read([=](const absl::Status& committed) {
    reactor->Finish(committed.ok() ? ToWire(answer(), job_id) : ToWire(committed));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ChangeAndAnswer(Engine* engine, grpc::CallbackServerContext* context,
                                          const std::string& job_id, const Change& change,
                                          const Answer& answer,
                                          void (Engine::*how)(Engine::Apply, Engine::Done)) {
  auto* reactor = context->DefaultReactor();
  const auto changed = std::make_shared<absl::Status>();
  (engine->*how)(
      [=](cluster::Cluster& cluster, absl::Time now) { *changed = change(cluster, now); },
      [=](const absl::Status& committed) {
        if (!committed.ok()) return reactor->Finish(ToWire(committed));
        reactor->Finish(ToWire(changed->ok() ? answer() : *changed, job_id));
      });
  return reactor;
}

grpc::ServerUnaryReactor* GiveCommand(Engine* engine, grpc::CallbackServerContext* context,
                                      const std::string& job_id, const Give& give,
                                      v1::Operation* response) {
  const auto number = std::make_shared<uint64_t>();
  return ChangeAndAnswer(
      engine, context, job_id,
      [=](cluster::Cluster& cluster, absl::Time now) -> absl::Status {
        ASSIGN_OR_RETURN(*number, give(cluster, now));
        return absl::OkStatus();
      },
      [=] { return FillOperation(engine->cluster(), job_id, *number, response); });
}

grpc::ServerUnaryReactor* PostCommand(Engine* engine, grpc::CallbackServerContext* context,
                                      const cluster::CommandRequest& request,
                                      v1::Operation* response, const cluster::CommandCheck& check) {
  return GiveCommand(
      engine, context, request.job_id,
      [request, check](cluster::Cluster& cluster, absl::Time now) {
        return cluster.Command(request, now, [&](const jobs::Job& job) {
          absl::Status lacks = CheckNeeds(job, request.command.kind);
          return lacks.ok() && check != nullptr ? check(job) : lacks;
        });
      },
      response);
}

grpc::ServerUnaryReactor* PostCommandFor(Engine* engine, grpc::CallbackServerContext* context,
                                         const cluster::CommandRequest& request,
                                         v1::Operation* response, const ContentsOf& contents_of) {
  return GiveCommand(
      engine, context, request.job_id,
      [request, contents_of](cluster::Cluster& cluster, absl::Time now) {
        cluster::CommandRequest complete = request;
        absl::Status refused;
        const jobs::Job* job = cluster.Find(request.job_id);
        if (job != nullptr) refused = CheckNeeds(*job, request.command.kind);
        if (job != nullptr && refused.ok()) {
          const auto contents = contents_of(*job);
          refused = contents.status();
          if (contents.ok()) complete.command.contents = contents->SerializeAsString();
        }
        // A repeat gets the first answer even if it would be refused now.
        return cluster.Command(complete, now, [&](const jobs::Job&) { return refused; });
      },
      response);
}

}  // namespace muster::service
