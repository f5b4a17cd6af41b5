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

// How many calls of each connection have begun and are not done, and whether one more may begin.
//
// HTTP/2 limits the calls that a connection has at a time. But a call that the client resets no
// longer counts there, although the server still works on it. So a client that begins calls and
// resets each one at once (rapid reset, CVE-2023-44487) could make a server keep any number of
// them. These limits count a call until the server is done with it. A client whose calls are
// neither cancelled nor out of time does not reach the limit of one connection.
//
// gRPC runs a call that has begun, or ends it before. It does not tell us of the second case. So a
// call that has begun and does not run is forgotten after a while. HTTP/2's own limit still holds
// for it.
//
// Pure; one thread.
struct CallLimits {
  // Of one connection. More than its streams (rpc.cc), because a client may begin the next call as
  // soon as it has the answer of one with which the server is not done.
  int per_connection = 1500;
  // Each connection always has room for so many calls: no other connection can use it.
  int own = 8;
  // Of what all connections over one transport have beyond that, together. So clients over TCP
  // leave those over Unix sockets their room.
  int shared = 8000;
  // Between one and two such times after it began, a call that does not run is forgotten.
  absl::Duration forgotten_after = absl::Seconds(10);
};

class CallCounts {
 public:
  // No two connections have the same number.
  using Connection = std::pair<Transport, int64_t>;
  enum class Verdict { kAdmitted, kConnectionFull, kAllFull };

  explicit CallCounts(const CallLimits& limits) : limits_(limits) {}

  // A call begins. If it is not admitted, it is not counted.
  Verdict Begins(Connection connection, absl::Time now);
  // One that has begun runs now.
  void Runs(Connection connection);
  // One that ran is done.
  void Ends(Connection connection);

  // Connections that have a call.
  size_t connections() const { return counts_.size(); }

 private:
  struct Count {
    int running = 0;
    // Not running yet: begun since period_, and before.
    int begun = 0;
    int begun_before = 0;
    int all() const { return running + begun + begun_before; }
  };

  int BeyondOwn(const Count& count) const;
  int& SharedBy(Connection connection) { return shared_[static_cast<size_t>(connection.first)]; }
  void ForgetOld(absl::Time now);

  const CallLimits limits_;
  absl::flat_hash_map<Connection, Count> counts_;
  std::array<int, 2> shared_ = {};  // of each transport: the sum of BeyondOwn
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
