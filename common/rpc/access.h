// The roles that may call each method, from the option of its rpc (proto/muster/v1/role.proto).
#ifndef MUSTER_COMMON_RPC_ACCESS_H_
#define MUSTER_COMMON_RPC_ACCESS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/certs/deny_list.h"
#include "common/certs/subject.h"
#include "common/rpc/caller.h"
#include "proto/muster/v1/role.pb.h"

namespace muster {

// The roles of certificates that may call a method with this option; none without an option.
std::vector<certs::Role> RolesOf(v1::Caller::Role role);

// Method ("/muster.v1.JobService/GetJob") -> the roles whose certificates may call the method.
// access.cc names the services; a new service must be added there.
const std::map<std::string, std::vector<certs::Role>>& AccessTable();

// Returns whether a service of Muster itself refuses calls of this method (by Authorize). A refusal
// by gRPC before the service would lose the details of the error.
bool IsRefusedByItsService(const std::string& method);

// Checks that the caller may make the call. Nobody may call a method without a role. Callers
// without a certificate may make every other call. They are this daemon's own user or root (kUser),
// or use an insecure listener, which the operator has opened (kInsecure). The message says who,
// what, which roles may, and what to do.
// - UNIMPLEMENTED METHOD_UNKNOWN: the method is not in the table.
// - PERMISSION_DENIED CERTIFICATE_REVOKED
// - PERMISSION_DENIED ROLE_UNKNOWN: the common name is not ROLE/NAME.
// - PERMISSION_DENIED ROLE_NOT_ALLOWED: also for a coordinator's certificate.
absl::Status Authorize(const Caller& caller, const std::string& method,
                       const certs::DenyList& denied);

// The reason of an error that tells an agent that its name will never be accepted.
inline constexpr char kNodeNotAllowed[] = "NODE_NOT_ALLOWED";

// Checks that the caller may be the agent of this node. A certificate must be that of "agent/NODE";
// callers without a certificate may be every agent. PERMISSION_DENIED NODE_NOT_ALLOWED: the
// certificate is for another node, or not for an agent.
absl::Status AgentMayBe(const Caller& caller, const std::string& node);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ACCESS_H_
