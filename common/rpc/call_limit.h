// CallLimits for a gRPC server. The server refuses an excess call when gRPC reads it, before the
// call takes the memory and time of a running call. A later refusal would not help: gRPC may read
// thousands of calls of a connection before the first call runs.
//
// The processor of a listener's credentials (CallerProcessor, PlainCredentials) gives each
// connection a number and asks for each call. Interceptors of the server notice when a call runs
// and when it is done. Thread-safe.
#ifndef MUSTER_COMMON_RPC_CALL_LIMIT_H_
#define MUSTER_COMMON_RPC_CALL_LIMIT_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/connections.h"

namespace muster {

// The limits of CallCounts.
struct CallLimits {
  // The limit for one connection. Larger than the number of its streams (rpc.cc). The reason: a
  // client with an answer may begin the next call before the server is done with the answered call.
  int per_connection = 1500;
  // The number of calls for which each connection always has room. No other connection can use this
  // room.
  int own = 8;
  // The limit for calls beyond `own`, of all connections over one transport together. So clients
  // over TCP leave room for clients over Unix sockets.
  int shared = 8000;
  // A call that does not run is forgotten one to two such periods after its begin.
  absl::Duration forgotten_after = absl::Seconds(10);
};

// Counts the calls of each connection that have begun and are not done, and decides whether another
// call may begin.
//
// HTTP/2 limits the calls that a connection has at a time. But HTTP/2 no longer counts a call that
// the client resets, although the server still works on the call. So a client that begins calls and
// resets each at once (rapid reset, CVE-2023-44487) could burden a server with any number of calls.
// This class counts a call until the server is done with it. A client whose calls are neither
// cancelled nor out of time does not reach the limit of one connection.
//
// gRPC runs a call that has begun, or ends it earlier without a notice. So a call that has begun
// and does not run is forgotten after a while. HTTP/2's own limit still holds for such a call.
//
// Pure; one thread.
class CallCounts {
 public:
  // No two connections have the same number.
  using Connection = std::pair<Transport, int64_t>;
  enum class Verdict { kAdmitted, kConnectionFull, kAllFull };

  explicit CallCounts(const CallLimits& limits) : limits_(limits) {}

  // Notes that a call begins. Does not count a call that is not admitted.
  Verdict Begins(Connection connection, absl::Time now);
  // Notes that a call that has begun runs.
  void Runs(Connection connection);
  // Notes that a running call is done.
  void Ends(Connection connection);

  // The number of connections that have a call.
  size_t connections() const { return counts_.size(); }

 private:
  struct Count {
    int running = 0;
    // The calls that do not run yet: begun since period_, and earlier.
    int begun = 0;
    int begun_before = 0;
    int all() const { return running + begun + begun_before; }
  };

  int BeyondOwn(const Count& count) const;
  int& SharedBy(Connection connection) { return shared_[static_cast<size_t>(connection.first)]; }
  void ForgetOld(absl::Time now);

  const CallLimits limits_;
  absl::flat_hash_map<Connection, Count> counts_;
  std::array<int, 2> shared_ = {};  // for each transport, the sum of BeyondOwn
  absl::Time period_ = absl::InfinitePast();
};

class CallLimit {
 public:
  explicit CallLimit(const CallLimits& limits) : counts_(limits) {}

  // Makes the interceptors by which a server tells `limit` which calls run.
  static std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Interceptors(
      std::shared_ptr<CallLimit> limit);

  // The value of the property kConnectionNumber for a new connection.
  std::string NewConnection(Transport transport) ABSL_LOCKS_EXCLUDED(mutex_);
  // Notes that a call of this connection begins. RESOURCE_EXHAUSTED: the call must be refused.
  absl::Status Begins(std::optional<CallCounts::Connection> connection) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class RunningCall;
  class RunningCalls;

  absl::Mutex mutex_;
  CallCounts counts_ ABSL_GUARDED_BY(mutex_);
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The property with the number of a connection. No property of a handshake begins like this, so a
// client cannot set it.
inline constexpr char kConnectionNumber[] = "muster_connection";
std::optional<CallCounts::Connection> ConnectionNumber(absl::string_view value);
// The number of the connection; empty if it has none.
std::optional<CallCounts::Connection> ConnectionNumber(const grpc::AuthContext& connection);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALL_LIMIT_H_
