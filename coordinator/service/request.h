// Code that all calls which change something share.
#ifndef MUSTER_COORDINATOR_SERVICE_REQUEST_H_
#define MUSTER_COORDINATOR_SERVICE_REQUEST_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <string>

#include "common/commands/command_rule.h"
#include "coordinator/cluster/event.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {

// Two requests are the same if their fingerprints are equal: the call and its contents, without the
// fields `request_id` and `requested_by`.
std::string FingerprintOf(const std::string& call, const google::protobuf::Message& request);

// Checks the page size of a list; 0 means the server's default. INVALID_ARGUMENT PAGE_SIZE_INVALID.
absl::Status CheckPageSize(int size);

// INVALID_ARGUMENT PAGE_TOKEN_INVALID.
absl::Status BadPageToken(const std::string& token);

// Who makes the call, as its connection proves (common/rpc/caller.h).
std::string RequesterOf(const grpc::CallbackServerContext* context);

// The same, and then what he says of himself (common/printable/printable.h), for a record of one
// line.
std::string LabelOf(const grpc::CallbackServerContext* context, const std::string& requested_by);

// The command that a request asks for. `contents` has neither number nor step. `call`: the name for
// its fingerprint; empty: that of the command.
template <typename Request>
cluster::CommandRequest CommandOf(const grpc::CallbackServerContext* context,
                                  const Request& request, const v1::Command& contents,
                                  const std::string& call = "") {
  cluster::CommandRequest command{
      .job_id = request.job_id(),
      .request_id = request.request_id(),
      .fingerprint = FingerprintOf(call.empty() ? commands::FieldName(contents) : call, request),
      .command = {.kind = commands::KindOf(contents),
                  .contents = contents.SerializeAsString(),
                  .requested_by = request.requested_by(),
                  .requester = RequesterOf(context)}};
  if constexpr (requires { request.has_at_step(); }) {
    if (request.has_at_step()) command.command.at_step = request.at_step();
  }
  return command;
}

// Stores the command and answers with its operation, or with the error of CheckNeeds or of `check`,
// which may be null.
grpc::ServerUnaryReactor* PostCommand(Engine* engine, const cluster::CommandRequest& request,
                                      v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                                      const cluster::CommandCheck& check = nullptr);

// The same for a command whose contents depend on its job, which `contents_of` makes (without
// number and step), or refuses. `request` has the kind.
using ContentsOf = std::function<absl::StatusOr<v1::Command>(const jobs::Job& job)>;
grpc::ServerUnaryReactor* PostCommandFor(Engine* engine, const cluster::CommandRequest& request,
                                         v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                                         const ContentsOf& contents_of);

// Answers with the operation as it is now, or with NOT_FOUND OPERATION_NOT_FOUND.
void AnswerWithOperation(const cluster::Cluster& cluster, const std::string& job_id,
                         uint64_t number, v1::Operation* response,
                         grpc::ServerUnaryReactor* reactor);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_REQUEST_H_
