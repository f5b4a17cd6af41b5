// How many calls of each connection have begun and are not done, and whether one more may begin.
//
// HTTP/2 limits the calls that a connection has at a time, but a call that the client resets no
// longer counts there, although the server still works on it. So a client that begins calls and
// resets each one at once (rapid reset, CVE-2023-44487) could make a server keep any number of
// them. These limits count a call until the server is done with it. A client that keeps to the
// protocol never reaches the limit of one connection.
//
// A call that has begun either runs later, or ends before it runs, which gRPC does not tell. So one
// that has begun and does not run is forgotten after a while.
//
// Pure; one thread.
#ifndef MUSTER_COMMON_RPC_CALL_COUNTS_H_
#define MUSTER_COMMON_RPC_CALL_COUNTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace muster {

struct CallLimits {
  // Of one connection. More than its streams (rpc.cc), because a client may begin the next call as
  // soon as it has the answer of one with which the server is not done.
  int per_connection = 1500;
  // Each connection always has room for so many calls: no other connection can use it.
  int own = 8;
  // Of what all connections have beyond that, together.
  int shared = 8000;
  // Between one and two such times after it began, a call that does not run is forgotten.
  absl::Duration forgotten_after = absl::Seconds(10);
};

class CallCounts {
 public:
  using Connection = int64_t;
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
  void ForgetOld(absl::Time now);

  const CallLimits limits_;
  absl::flat_hash_map<Connection, Count> counts_;
  int shared_ = 0;  // the sum of BeyondOwn
  absl::Time period_ = absl::InfinitePast();
};

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALL_COUNTS_H_
