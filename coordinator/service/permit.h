// Permits: whether the caller of an open stream may still use it. A certificate may be revoked
// while the stream is open.
#ifndef MUSTER_COORDINATOR_SERVICE_PERMIT_H_
#define MUSTER_COORDINATOR_SERVICE_PERMIT_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/rpc/caller.h"
#include "common/rpc/caller_processor.h"

namespace muster::service {

// Returns OK, or why the stream has to end.
using Permit = std::function<absl::Status()>;

// Returns a Permit that asks `authorize` about this caller's call of `method`.
inline Permit PermitOf(Caller caller, std::string method, Authorizer authorize) {
  // Only a certificate can be revoked while its holder is connected.
  if (caller.kind != Caller::Kind::kCertificate) return [] { return absl::OkStatus(); };
  return [caller = std::move(caller), method = std::move(method),
          authorize = std::move(authorize)] { return authorize(caller, method); };
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_PERMIT_H_
