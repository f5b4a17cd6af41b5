#include "coordinator/service/request.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/printable/printable.h"
#include "common/rpc/caller.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/needs.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

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

absl::Status CheckPageSize(int size) {
  if (size >= 0 && size <= kLimits.page_size) return absl::OkStatus();
  return Refuse(absl::StatusCode::kInvalidArgument, "PAGE_SIZE_INVALID",
                absl::StrCat("page_size ", size, ": expected 1 to ", kLimits.page_size),
                {{"field", "page_size"}, {"limit", absl::StrCat(kLimits.page_size)}});
}

absl::Status BadPageToken(const std::string& token) {
  return Refuse(absl::StatusCode::kInvalidArgument, "PAGE_TOKEN_INVALID",
                absl::StrCat("page_token '", token, "' is not one of this server's"),
                {{"field", "page_token"}});
}

void AnswerWithOperation(const cluster::Cluster& cluster, const std::string& job_id,
                         uint64_t number, v1::Operation* response,
                         grpc::ServerUnaryReactor* reactor) {
  const jobs::Job* job = cluster.Find(job_id);
  if (job == nullptr) return reactor->Finish(ToWire(NoSuchJob(job_id)));
  const commands::Command* command = job->commands.Find(number);
  if (command == nullptr) {
    return reactor->Finish(
        ToWire(Refuse(absl::StatusCode::kNotFound, "OPERATION_NOT_FOUND",
                      absl::StrCat("there is no operation '", OperationName(job_id, number), "'"),
                      {{"job", job_id}, {"operation", OperationName(job_id, number)}})));
  }
  *response = ToWire(*job, *command, cluster);
  reactor->Finish(grpc::Status::OK);
}

namespace {

// Gives a command to the cluster. Returns its number.
using Give = std::function<absl::StatusOr<uint64_t>(cluster::Cluster&, absl::Time)>;

grpc::ServerUnaryReactor* Post(Engine* engine, const cluster::CommandRequest& request,
                               v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                               const Give& give) {
  auto number = std::make_shared<absl::StatusOr<uint64_t>>();
  engine->Request([=](cluster::Cluster& cluster, absl::Time now) { *number = give(cluster, now); },
                  [=](const absl::Status& committed) {
                    if (!committed.ok()) return reactor->Finish(ToWire(committed));
                    if (!number->ok())
                      return reactor->Finish(ToWire(number->status(), request.job_id));
                    AnswerWithOperation(engine->cluster(), request.job_id, **number, response,
                                        reactor);
                  });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* PostCommand(Engine* engine, const cluster::CommandRequest& request,
                                      v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                                      const cluster::CommandCheck& check) {
  return Post(engine, request, response, reactor,
              [request, check](cluster::Cluster& cluster, absl::Time now) {
                return cluster.Command(request, now, [&](const jobs::Job& job) {
                  absl::Status lacks = CheckNeeds(job, request.command.kind);
                  return lacks.ok() && check != nullptr ? check(job) : lacks;
                });
              });
}

grpc::ServerUnaryReactor* PostCommandFor(Engine* engine, const cluster::CommandRequest& request,
                                         v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                                         const ContentsOf& contents_of) {
  return Post(engine, request, response, reactor,
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
                // A repeat gets the first answer whatever there is against it now.
                return cluster.Command(complete, now, [&](const jobs::Job&) { return refused; });
              });
}

}  // namespace muster::service
