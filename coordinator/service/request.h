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

// Returns a hash of a call and its contents, without the fields `request_id` and `requested_by`.
// Two requests are the same if their fingerprints are equal.
std::string FingerprintOf(const std::string& call, const google::protobuf::Message& request);

// The page of a list that a request asks for.
struct AskedPage {
  // The number in the page's token.
  uint64_t token = 0;
  int size = 0;
};
// Returns the page that a request asks for. `first`: the token of the first page. A size of 0 means
// the server's default. INVALID_ARGUMENT PAGE_TOKEN_INVALID, PAGE_SIZE_INVALID.
absl::StatusOr<AskedPage> PageOf(const std::string& token, int size, uint64_t first);

// Returns who makes the call, as the connection proves (common/rpc/caller.h).
std::string RequesterOf(const grpc::CallbackServerContext* context);

// Returns RequesterOf and then the name that the caller gives (common/printable/printable.h), for a
// record of one line.
std::string LabelOf(const grpc::CallbackServerContext* context, const std::string& requested_by);

// Returns the command that a request asks for. `contents` has neither number nor step. `call`: the
// call's name in the fingerprint; if empty, the command's name.
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

// Checks that the job file has what a command of this kind needs, by the command's rule
// (proto/muster/v1/command_rule.proto). FAILED_PRECONDITION NO_OPTIMIZER, NO_CHECKPOINTS,
// CANNOT_GENERATE.
absl::Status CheckNeeds(const jobs::Job& job, v1::Operation::Kind kind);

// Ends the call at once.
grpc::ServerUnaryReactor* EndCall(grpc::CallbackServerContext* context, const absl::Status& status,
                                  const std::string& job_id = "");

// Ends the call with the status of `answer`, which fills the response in from committed state
// (Engine::Read). `job_id`: the subject of errors; may be empty.
using Answer = std::function<absl::Status()>;
grpc::ServerUnaryReactor* ReadAndAnswer(Engine* engine, grpc::CallbackServerContext* context,
                                        const std::string& job_id, const Answer& answer);

// Ends the call with the error of `change`. If there is none, ends the call with the status of
// `answer` when the change is durable. `how`: one of Engine's functions for changes.
using Change = std::function<absl::Status(cluster::Cluster&, absl::Time now)>;
grpc::ServerUnaryReactor* ChangeAndAnswer(Engine* engine, grpc::CallbackServerContext* context,
                                          const std::string& job_id, const Change& change,
                                          const Answer& answer,
                                          void (Engine::*how)(Engine::Apply,
                                                              Engine::Done) = &Engine::Request);

// Answers with the operation whose number `give` returns, when its change is durable.
using Give = std::function<absl::StatusOr<uint64_t>(cluster::Cluster&, absl::Time now)>;
grpc::ServerUnaryReactor* GiveCommand(Engine* engine, grpc::CallbackServerContext* context,
                                      const std::string& job_id, const Give& give,
                                      v1::Operation* response);

// Stores the command and answers with its operation. Errors: those of CheckNeeds and of `check`,
// which may be null.
grpc::ServerUnaryReactor* PostCommand(Engine* engine, grpc::CallbackServerContext* context,
                                      const cluster::CommandRequest& request,
                                      v1::Operation* response,
                                      const cluster::CommandCheck& check = nullptr);

// Does the same for a command whose contents depend on its job. `contents_of` makes the contents
// (without number and step), or refuses. `request` has the kind.
using ContentsOf = std::function<absl::StatusOr<v1::Command>(const jobs::Job& job)>;
grpc::ServerUnaryReactor* PostCommandFor(Engine* engine, grpc::CallbackServerContext* context,
                                         const cluster::CommandRequest& request,
                                         v1::Operation* response, const ContentsOf& contents_of);

// Fills in the current state of the operation. NOT_FOUND JOB_NOT_FOUND, OPERATION_NOT_FOUND.
absl::Status FillOperation(const cluster::Cluster& cluster, const std::string& job_id,
                           uint64_t number, v1::Operation* response);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_REQUEST_H_
