// What the calls that change something have in common.
#ifndef MUSTER_COORDINATOR_SERVICE_REQUEST_H_
#define MUSTER_COORDINATOR_SERVICE_REQUEST_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/cluster/event.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {

// What makes two requests the same: the call and its contents, without the fields `request_id` and
// `requested_by`.
std::string FingerprintOf(const std::string& call, const google::protobuf::Message& request);

// Of a list; 0: the server's own choice. INVALID_ARGUMENT PAGE_SIZE_INVALID.
absl::Status CheckPageSize(int size);

// At most 256 bytes of it, whole characters: what clients say of themselves is kept.
std::string Shortened(std::string text);

template <typename Request>
std::optional<uint64_t> AtStep(const Request& request) {
  return request.has_at_step() ? std::optional<uint64_t>(request.at_step()) : std::nullopt;
}

// The command that a request asks for. contents: without number and step.
template <typename Request>
cluster::CommandRequest CommandOf(const std::string& call, const Request& request,
                                  commands::Kind kind, const v1::Command& contents,
                                  std::optional<uint64_t> at_step = std::nullopt) {
  return {.job_id = request.job_id(),
          .request_id = request.request_id(),
          .fingerprint = FingerprintOf(call, request),
          .command = {.kind = kind,
                      .contents = contents.SerializeAsString(),
                      .at_step = at_step,
                      .requested_by = Shortened(request.requested_by())}};
}

// Stores the command, unless `check` (may be null) has something against it, and answers with its
// operation.
grpc::ServerUnaryReactor* PostCommand(Engine* engine, const cluster::CommandRequest& request,
                                      v1::Operation* response, grpc::ServerUnaryReactor* reactor,
                                      const cluster::Cluster::Check& check = nullptr);

// The operation as it stands, or that there is none.
void AnswerWithOperation(const cluster::Cluster& cluster, const std::string& job_id,
                         uint64_t number, v1::Operation* response,
                         grpc::ServerUnaryReactor* reactor);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_REQUEST_H_
