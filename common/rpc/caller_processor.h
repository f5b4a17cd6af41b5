// Decides for each call, before it reaches a service, whether its caller may make it.
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

// Whether the caller may make this call; `method` is "/muster.v1.JobService/GetJob". Called by
// gRPC's threads for every call, several at a time; it must not wait. Of an error, code and message
// reach the client; gRPC drops its details.
using Authorizer = std::function<absl::Status(const Caller& caller, const std::string& method)>;

// Belongs to the credentials of a listener (ServerCredentials::SetAuthMetadataProcessor). The first
// call of a connection stores its caller with the connection, where CallerOf finds it. A call that
// the caller may make counts for `limit`; null: there is no limit.
class CallerProcessor : public grpc::AuthMetadataProcessor {
 public:
  // For local credentials (Unix sockets): everybody who connects is this user. Whoever accepts the
  // connections makes sure of that.
  static std::shared_ptr<CallerProcessor> ForUser(uid_t uid, Authorizer authorize,
                                                  std::shared_ptr<CallLimit> limit = nullptr);
  // For TLS with certificates of clients, which the handshake has verified. UNAUTHENTICATED: the
  // connection has none, or it has expired (a session that is resumed has no new handshake), or it
  // has no serial number by which it could be revoked.
  static std::shared_ptr<CallerProcessor> ForCertificates(
      Authorizer authorize, std::shared_ptr<CallLimit> limit = nullptr);

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  CallerProcessor(std::optional<uid_t> uid, Authorizer authorize, std::shared_ptr<CallLimit> limit);
  // Stores the caller with the connection, at its first call.
  absl::Status IdentifyOnce(grpc::AuthContext* connection) ABSL_LOCKS_EXCLUDED(mutex_);

  // Empty: callers have certificates.
  const std::optional<uid_t> uid_;
  const Authorizer authorize_;
  const std::shared_ptr<CallLimit> limit_;
  // A connection's properties have no lock of their own, and gRPC may process two of its first
  // calls at once. Each call passes here, so the properties are written before any handler of the
  // connection reads them, and never again.
  absl::Mutex mutex_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALLER_PROCESSOR_H_
