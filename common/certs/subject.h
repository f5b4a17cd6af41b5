// The holder of a certificate: the common name is "ROLE/NAME", such as "operator/alice" or
// "agent/node1". A role says what its holder may call (common/rpc/access.h).
#ifndef MUSTER_COMMON_CERTS_SUBJECT_H_
#define MUSTER_COMMON_CERTS_SUBJECT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::certs {

enum class Role {
  // musterd: a server, which may call nothing. Clients expect this role of a server.
  kCoordinator,
  // A client that looks at jobs, and changes nothing.
  kReader,
  // A client that may make all calls of clients.
  kOperator,
  // One muster-agent and its workers; NAME is the name of the node.
  kAgent,
  // A worker without an agent's rights.
  kWorker,
};

// "coordinator", "reader", "operator", "agent" or "worker".
std::string ToString(Role role);
// INVALID_ARGUMENT: there is no such role; the message names all roles.
absl::StatusOr<Role> ParseRole(const std::string& text);

struct Subject {
  Role role = Role::kReader;
  std::string name;
};

// "ROLE/NAME".
std::string ToString(const Subject& subject);
// NAME has letters, digits, '.', '_' and '-', and does not begin with one of the last three.
// INVALID_ARGUMENT: not ROLE/NAME with an existing role and such a NAME, or more than 64
// characters, which is X.509's limit. The message shows other characters as their codes.
absl::StatusOr<Subject> ParseSubject(const std::string& common_name);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_SUBJECT_H_
