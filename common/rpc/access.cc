#include "common/rpc/access.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster {
namespace {

using certs::Role;

absl::Status Denied(const std::string& reason, const std::string& message, const Caller& caller,
                    std::map<std::string, std::string> metadata) {
  metadata["caller"] = ToString(caller);
  return MakeError(absl::StatusCode::kPermissionDenied, reason,
                   absl::StrCat(ToString(caller), ": ", message), metadata);
}

std::string Names(const std::vector<Role>& roles) {
  return absl::StrJoin(roles, " or ", [](std::string* text, Role role) {
    absl::StrAppend(text, certs::ToString(role));
  });
}

}  // namespace

const std::map<std::string, std::vector<Role>>& AccessTable() {
  static const std::vector<Role> everyone = {Role::kReader, Role::kOperator, Role::kAgent,
                                             Role::kWorker};
  // What changes nothing, and gives out no weights and no copy of the store.
  static const std::vector<Role> looks = {Role::kReader, Role::kOperator};
  static const std::vector<Role> changes = {Role::kOperator};
  static const std::vector<Role> agents = {Role::kAgent};
  // A worker runs with the certificate of its agent, or with one of its own.
  static const std::vector<Role> workers = {Role::kAgent, Role::kWorker};
  static const auto& table = *new std::map<std::string, std::vector<Role>>{
      {"/muster.v1.AgentService/Attach", agents},
      {"/muster.v1.AgentService/SendFile", agents},

      {"/muster.v1.ClusterService/Backup", changes},
      {"/muster.v1.ClusterService/CordonNode", changes},
      {"/muster.v1.ClusterService/DrainNode", changes},
      {"/muster.v1.ClusterService/ForgetNode", changes},
      {"/muster.v1.ClusterService/ListNodes", looks},
      {"/muster.v1.ClusterService/UncordonNode", changes},

      {"/muster.v1.ControlService/Consolidate", changes},
      {"/muster.v1.ControlService/GatherOptimizerState", changes},
      {"/muster.v1.ControlService/GetTrainability", looks},
      {"/muster.v1.ControlService/Refresh", changes},
      {"/muster.v1.ControlService/RunStage", changes},
      {"/muster.v1.ControlService/Sample", changes},
      {"/muster.v1.ControlService/SaveCheckpoint", changes},
      {"/muster.v1.ControlService/SetLearningRate", changes},
      {"/muster.v1.ControlService/SetTrainability", changes},

      {"/muster.v1.JobService/DeleteJob", changes},
      {"/muster.v1.JobService/GetJob", looks},
      {"/muster.v1.JobService/ListJobs", looks},
      {"/muster.v1.JobService/ParseJob", looks},
      {"/muster.v1.JobService/PauseJob", changes},
      {"/muster.v1.JobService/ResumeJob", changes},
      {"/muster.v1.JobService/RetryJob", changes},
      {"/muster.v1.JobService/StopJob", changes},
      {"/muster.v1.JobService/StreamLogs", looks},
      {"/muster.v1.JobService/StreamMetrics", looks},
      {"/muster.v1.JobService/SubmitJob", changes},
      {"/muster.v1.JobService/ValidateJob", looks},
      {"/muster.v1.JobService/WatchJob", looks},

      {"/muster.v1.OperationService/Cancel", changes},
      {"/muster.v1.OperationService/Download", changes},
      {"/muster.v1.OperationService/FinishDownload", changes},
      {"/muster.v1.OperationService/Get", looks},
      {"/muster.v1.OperationService/List", looks},
      {"/muster.v1.OperationService/Wait", looks},

      {"/muster.v1.WorkerService/Attach", workers},

      {"/grpc.health.v1.Health/Check", everyone},
      {"/grpc.health.v1.Health/Watch", everyone},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", looks},
  };
  return table;
}

bool IsRefusedByItsService(const std::string& method) {
  return absl::StartsWith(method, "/muster.v1.");
}

absl::Status Authorize(const Caller& caller, const std::string& method,
                       const certs::DenyList& denied) {
  if (caller.kind != Caller::Kind::kCertificate) return absl::OkStatus();
  if (denied.Has(caller.serial)) {
    return Denied("CERTIFICATE_REVOKED",
                  absl::StrCat("the certificate with the serial number ", caller.serial,
                               " is revoked; ask whoever issues certificates for a new one"),
                  caller, {{"serial", caller.serial}});
  }
  const auto subject = certs::ParseSubject(caller.name);
  if (!subject.ok()) return Denied("ROLE_UNKNOWN", Message(subject.status()), caller, {});
  if (subject->role == Role::kCoordinator) {
    return Denied("ROLE_NOT_ALLOWED",
                  "a coordinator's certificate is for a server, and may call nothing; connect with "
                  "one of the role operator, reader, agent or worker",
                  caller, {});
  }
  const auto found = AccessTable().find(method);
  if (found == AccessTable().end()) {
    return MakeError(absl::StatusCode::kUnimplemented, "METHOD_UNKNOWN",
                     absl::StrCat("this coordinator has no method '", absl::CHexEscape(method),
                                  "'; it may be older than the program that calls it"),
                     {{"method", absl::CHexEscape(method)}});
  }
  const std::vector<Role>& roles = found->second;
  if (std::find(roles.begin(), roles.end(), subject->role) != roles.end()) return absl::OkStatus();
  return Denied("ROLE_NOT_ALLOWED",
                absl::StrCat("the role ", certs::ToString(subject->role), " may not call ", method,
                             "; it needs a certificate of the role ", Names(roles),
                             " (`muster certs issue`)"),
                caller, {{"method", method}, {"roles", Names(roles)}});
}

absl::Status AgentMayBe(const Caller& caller, const std::string& node) {
  if (caller.kind != Caller::Kind::kCertificate) return absl::OkStatus();
  const auto subject = certs::ParseSubject(caller.name);
  if (subject.ok() && subject->role == Role::kAgent && subject->name == node) {
    return absl::OkStatus();
  }
  return Denied(
      kNodeNotAllowed,
      absl::StrCat("this certificate may not be the agent of node '", absl::CHexEscape(node),
                   "'; that needs one for agent/", absl::CHexEscape(node),
                   ", or start the agent with --node and the name in its certificate"),
      caller, {{"node", absl::CHexEscape(node)}});
}

}  // namespace muster
