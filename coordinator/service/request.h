// Code that all calls which change something share.
#ifndef MUSTER_COORDINATOR_SERVICE_REQUEST_H_
#define MUSTER_COORDINATOR_SERVICE_REQUEST_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

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

template <typename Request>
std::optional<uint64_t> AtStep(const Request& request) {
  return request.has_at_step() ? std::optional<uint64_t>(request.at_step()) : std::nullopt;
}

// Who makes the call, as its connection proves (common/rpc/caller.h).
std::string RequesterOf(const grpc::CallbackServerContext* context);

// The same, and then what he says of himself (common/printable/who_asked.h), for a record of one
// line.
std::string LabelOf(const grpc::CallbackServerContext* context, const std::string& requested_by);

// The command that a request asks for. `contents` has neither number nor step.
template <typename Request>
cluster::CommandRequest CommandOf(const grpc::CallbackServerContext* context,
                                  const std::string& call, const Request& request,
                                  commands::Kind kind, const v1::Command& contents,
                                  std::optional<uint64_t> at_step = std::nullopt) {
  return {.job_id = request.job_id(),
          .request_id = request.request_id(),
          .fingerprint = FingerprintOf(call, request),
          .command = {.kind = kind,
                      .contents = contents.SerializeAsString(),
                      .at_step = at_step,
                      .requested_by = request.requested_by(),
                      .requester = RequesterOf(context)}};
}

// Stores the command and answers with its operation, or with the error of `check`, which may be
// null.
grpc::ServerUnaryReactor* PostCommand(Engine* engine, const cluster::CommandRequest& request,
                                      v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                                      const cluster::CommandCheck& check = nullptr);

// The same for a command whose contents depend on its job, which `contents_of` makes (without
// number and step), or refuses.
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
