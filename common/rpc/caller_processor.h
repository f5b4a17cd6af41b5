// Decides for each call whether its caller may make it, before the call reaches a service.
#ifndef MUSTER_COMMON_RPC_CALLER_PROCESSOR_H_
#define MUSTER_COMMON_RPC_CALLER_PROCESSOR_H_

#include <grpcpp/security/auth_metadata_processor.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/caller.h"

namespace muster {

// Returns whether the caller may make this call; `method` is "/muster.v1.JobService/GetJob". Called
// by gRPC's threads for every call, several at a time; must not wait. The client gets the code and
// the message of an error; gRPC drops the details.
using Authorizer = std::function<absl::Status(const Caller& caller, const std::string& method)>;

// A processor for the credentials of a listener (ServerCredentials::SetAuthMetadataProcessor).
// Stores the caller with the connection at its first call; CallerOf finds it there. Counts each
// call that the caller may make for `limit`; null: there is no limit.
class CallerProcessor : public grpc::AuthMetadataProcessor {
 public:
  // Makes a processor for local credentials (Unix sockets). All callers count as this user. The
  // code that accepts the connections must admit only this user.
  static std::shared_ptr<CallerProcessor> ForUser(uid_t uid, Authorizer authorize,
                                                  std::shared_ptr<CallLimit> limit = nullptr);
  // Makes a processor for TLS with certificates of clients, which the handshake has verified.
  // UNAUTHENTICATED: there is no certificate, it has expired (a resumed session has no new
  // handshake), or a serial number for its revocation is missing.
  static std::shared_ptr<CallerProcessor> ForCertificates(
      Authorizer authorize, std::shared_ptr<CallLimit> limit = nullptr);

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  CallerProcessor(std::optional<uid_t> uid, Authorizer authorize, std::shared_ptr<CallLimit> limit);
  // Stores the caller with the connection at its first call.
  absl::Status IdentifyOnce(grpc::AuthContext* connection) ABSL_LOCKS_EXCLUDED(mutex_);

  // The user of all callers. Empty: callers have certificates.
  const std::optional<uid_t> uid_;
  const Authorizer authorize_;
  const std::shared_ptr<CallLimit> limit_;
  // A connection's properties have no lock of their own, and gRPC may process two of its first
  // calls at once. Each call takes this lock. So the properties are written once, before any
  // handler of the connection reads them.
  absl::Mutex mutex_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALLER_PROCESSOR_H_
