// Which clients a coordinator serves: those whose version is at most one minor version apart from
// its own (docs/upgrade.md). The command line and the Python package say their version in gRPC's
// header user-agent, which begins with "muster/0.2.0". Other programs do not, and are served.
#ifndef MUSTER_COORDINATOR_SERVICE_CLIENT_VERSION_H_
#define MUSTER_COORDINATOR_SERVICE_CLIENT_VERSION_H_

#include <string>

#include "absl/status/status.h"

namespace muster::service {

// `own`: the version of this program, "0.2.0". FAILED_PRECONDITION CLIENT_TOO_OLD or
// CLIENT_TOO_NEW. Pure.
absl::Status CheckClientVersion(const std::string& user_agent, const std::string& own);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CLIENT_VERSION_H_
