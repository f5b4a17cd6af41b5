#include "common/rpc/access.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "proto/muster/v1/cluster_service.pb.h"
#include "proto/muster/v1/control_service.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/operation_service.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

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

std::map<std::string, std::vector<Role>> ReadTable() {
  const std::vector<Role> everyone = {Role::kReader, Role::kOperator, Role::kAgent, Role::kWorker};
  // The methods of gRPC itself.
  std::map<std::string, std::vector<Role>> table = {
      {"/grpc.health.v1.Health/Check", everyone},
      {"/grpc.health.v1.Health/Watch", everyone},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
       RolesOf(v1::Caller::READER)},
  };
  // One message of each file that has a service.
  for (const auto* message :
       {v1::AgentMessage::descriptor(), v1::ListNodesRequest::descriptor(),
        v1::RefreshRequest::descriptor(), v1::GetJobRequest::descriptor(),
        v1::GetOperationRequest::descriptor(), v1::WorkerMessage::descriptor()}) {
    for (int i = 0; i < message->file()->service_count(); ++i) {
      const auto* service = message->file()->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        const auto* method = service->method(j);
        table[absl::StrCat("/", service->full_name(), "/", method->name())] =
            RolesOf(method->options().GetExtension(v1::role));
      }
    }
  }
  return table;
}

}  // namespace

std::vector<Role> RolesOf(v1::Caller::Role role) {
  switch (role) {
    case v1::Caller::READER:
      return {Role::kReader, Role::kOperator};
    case v1::Caller::OPERATOR:
      return {Role::kOperator};
    case v1::Caller::AGENT:
      return {Role::kAgent};
    case v1::Caller::WORKER:
      return {Role::kAgent, Role::kWorker};
    default:
      return {};
  }
}

const std::map<std::string, std::vector<Role>>& AccessTable() {
  static const auto& table = *new std::map<std::string, std::vector<Role>>(ReadTable());
  return table;
}

bool IsRefusedByItsService(const std::string& method) {
  return absl::StartsWith(method, "/muster.v1.");
}

absl::Status Authorize(const Caller& caller, const std::string& method,
                       const certs::DenyList& denied) {
  const auto found = AccessTable().find(method);
  if (found != AccessTable().end() && found->second.empty()) {
    return Denied("ROLE_NOT_ALLOWED", absl::StrCat("nobody may call ", method, ": it has no role"),
                  caller, {{"method", method}});
  }
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
