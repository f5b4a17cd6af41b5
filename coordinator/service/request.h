// Code that the calls of clients share.
#ifndef MUSTER_COORDINATOR_SERVICE_REQUEST_H_
#define MUSTER_COORDINATOR_SERVICE_REQUEST_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/commands/command_rule.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/service/engine.h"
#include "proto/muster/v1/job_spec.pb.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {

// Two requests are the same if their fingerprints are equal: the call and its contents, without the
// fields `request_id` and `requested_by`.
std::string FingerprintOf(const std::string& call, const google::protobuf::Message& request);

// The page of a list that a request asks for.
struct AskedPage {
  // The number in its token.
  uint64_t token = 0;
  int size = 0;
};
// `first`: the token of the first page; a size of 0 means the server's default. INVALID_ARGUMENT
// PAGE_TOKEN_INVALID, PAGE_SIZE_INVALID.
absl::StatusOr<AskedPage> PageOf(const std::string& token, int size, uint64_t first);

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

v1::JobSpec SpecOf(const jobs::Job& job);

// What a job must have for a command, as the command's rule says
// (proto/muster/v1/command_rule.proto). FAILED_PRECONDITION NO_OPTIMIZER, NO_CHECKPOINTS,
// CANNOT_GENERATE: the job file lacks what a command of this kind needs.
absl::Status CheckNeeds(const jobs::Job& job, v1::Operation::Kind kind);

// Ends the call at once.
grpc::ServerUnaryReactor* EndCall(grpc::CallbackServerContext* context, const absl::Status& status,
                                  const std::string& job_id = "");

// Ends the call with the status of `answer`, which fills the response in from what is committed
// (Engine::Read). `job_id`: what an error is about; may be empty.
using Answer = std::function<absl::Status()>;
grpc::ServerUnaryReactor* ReadAndAnswer(Engine* engine, grpc::CallbackServerContext* context,
                                        const std::string& job_id, const Answer& answer);

// Ends the call with the error of `change`, or, when the change is durable, with the status of
// `answer`. `how`: one of Engine's functions for such changes.
using Change = std::function<absl::Status(cluster::Cluster&, absl::Time now)>;
grpc::ServerUnaryReactor* ChangeAndAnswer(Engine* engine, grpc::CallbackServerContext* context,
                                          const std::string& job_id, const Change& change,
                                          const Answer& answer,
                                          void (Engine::*how)(Engine::Apply,
                                                              Engine::Done) = &Engine::Request);

// Answers with the operation whose number `give` returns, once its change is durable.
using Give = std::function<absl::StatusOr<uint64_t>(cluster::Cluster&, absl::Time now)>;
grpc::ServerUnaryReactor* GiveCommand(Engine* engine, grpc::CallbackServerContext* context,
                                      const std::string& job_id, const Give& give,
                                      v1::Operation* response);

// Stores the command and answers with its operation, or with the error of CheckNeeds or of `check`,
// which may be null.
grpc::ServerUnaryReactor* PostCommand(Engine* engine, grpc::CallbackServerContext* context,
                                      const cluster::CommandRequest& request,
                                      v1::Operation* response,
                                      const cluster::CommandCheck& check = nullptr);

// The same for a command whose contents depend on its job, which `contents_of` makes (without
// number and step), or refuses. `request` has the kind.
using ContentsOf = std::function<absl::StatusOr<v1::Command>(const jobs::Job& job)>;
grpc::ServerUnaryReactor* PostCommandFor(Engine* engine, grpc::CallbackServerContext* context,
                                         const cluster::CommandRequest& request,
                                         v1::Operation* response, const ContentsOf& contents_of);

// Fills in the operation as it is now. NOT_FOUND JOB_NOT_FOUND, OPERATION_NOT_FOUND.
absl::Status FillOperation(const cluster::Cluster& cluster, const std::string& job_id,
                           uint64_t number, v1::Operation* response);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_REQUEST_H_
