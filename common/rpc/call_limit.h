// CallLimits for a gRPC server. A call that is one too many is refused where gRPC reads it, before
// it takes the memory and time of a call that runs. To refuse it later would not help: gRPC may
// read thousands of calls of a connection before it runs the first one.
//
// The processor of a listener's credentials (CallerProcessor, PlainCredentials) gives each
// connection a number and asks for each call. Interceptors of the server notice when a call runs
// and when it is done. Thread-safe.
#ifndef MUSTER_COMMON_RPC_CALL_LIMIT_H_
#define MUSTER_COMMON_RPC_CALL_LIMIT_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/call_counts.h"
#include "common/rpc/connections.h"

namespace muster {

class CallLimit {
 public:
  explicit CallLimit(const CallLimits& limits) : counts_(limits) {}

  // Makes the interceptors by which a server tells `limit` which calls run.
  static std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Interceptors(
      std::shared_ptr<CallLimit> limit);

  // The value of the property kConnectionNumber for a new connection.
  std::string NewConnection(Transport transport) ABSL_LOCKS_EXCLUDED(mutex_);
  // A call of the connection with this number begins. RESOURCE_EXHAUSTED: it must be refused.
  absl::Status Begins(std::optional<CallCounts::Connection> connection) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class RunningCall;
  class RunningCalls;

  absl::Mutex mutex_;
  CallCounts counts_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The property of a connection that has its number. No property of a handshake begins like this, so
// a client cannot set it.
inline constexpr char kConnectionNumber[] = "muster_connection";
std::optional<CallCounts::Connection> ConnectionNumber(absl::string_view value);
// Empty: it has none.
std::optional<CallCounts::Connection> ConnectionNumber(const grpc::AuthContext& connection);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALL_LIMIT_H_
