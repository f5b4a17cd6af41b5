// Who may call what: the role of each method, as the option of its rpc says
// (proto/muster/v1/role.proto).
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

// The roles of certificates that may call a method with this option; none without one.
std::vector<certs::Role> RolesOf(v1::Caller::Role role);

// Method ("/muster.v1.JobService/GetJob") -> the roles whose certificates may call it. A new
// service is named in access.cc.
const std::map<std::string, std::vector<certs::Role>>& AccessTable();

// Whether a service of Muster refuses calls of this method (by Authorize) itself, and not gRPC
// before it sees them: gRPC would drop the details of the error.
bool IsRefusedByItsService(const std::string& method);

// OK: the caller may make the call. Nobody may call a method without a role. Callers without a
// certificate may make every other call: they are
// this daemon's own user or root (kUser), or its operator has opened an insecure listener
// (kInsecure). UNIMPLEMENTED METHOD_UNKNOWN: it is not in the table.
// PERMISSION_DENIED CERTIFICATE_REVOKED; ROLE_UNKNOWN: the common name is not ROLE/NAME; a
// coordinator's certificate; ROLE_NOT_ALLOWED. The message says who, what, which roles may, and
// what to do.
absl::Status Authorize(const Caller& caller, const std::string& method,
                       const certs::DenyList& denied);

// The reason by which an agent knows that it will never be let in under its name.
inline constexpr char kNodeNotAllowed[] = "NODE_NOT_ALLOWED";

// OK: the caller may be the agent of this node. A certificate may be that of "agent/NODE" only;
// callers without one may be every agent.
// PERMISSION_DENIED NODE_NOT_ALLOWED: it is for another node, or not for an agent.
absl::Status AgentMayBe(const Caller& caller, const std::string& node);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ACCESS_H_
