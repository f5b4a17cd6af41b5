// Checks whether the ranks of a generation reach each other at the addresses of their nodes' agents
// (`muster-agent --host`). The libraries that connect the ranks try silently for minutes. These
// checks report within seconds which address does not answer, and what to do.
#ifndef MUSTER_WORKER_CONTROL_REACH_H_
#define MUSTER_WORKER_CONTROL_REACH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster::control {

// A port that accepts connections and does nothing else, as long as the object lives.
class ReachListener {
 public:
  // `host`: a numeric address of this machine. INVALID_ARGUMENT: it is not numeric.
  // FAILED_PRECONDITION with train::Cause::kNodeFault: this machine does not have this address.
  // UNAVAILABLE: other errors.
  static absl::StatusOr<std::unique_ptr<ReachListener>> Open(const std::string& host);
  ~ReachListener();
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  uint16_t port() const { return port_; }

 private:
  ReachListener(int fd, uint16_t port) : fd_(fd), port_(port) {}

  const int fd_;
  const uint16_t port_;
};

struct Peer {
  int64_t rank = 0;
  // A numeric address.
  std::string host;
  uint16_t port = 0;
};

struct Patience {
  // The time after which others are told that a peer does not answer.
  absl::Duration tell = absl::Seconds(3);
  // The time after which to give up.
  absl::Duration end = absl::Seconds(60);
};

// A function that gets the trouble that keeps this rank from starting; empty: no trouble any more.
using TellTrouble = std::function<void(const std::string& trouble)>;

// Connects to the peer, with retries. FAILED_PRECONDITION: nothing listens at the peer's address,
// and every machine reaches only itself there, so another start would fail in the same way.
// UNAVAILABLE: the peer did not answer in time.
absl::Status AwaitReachable(const Peer& peer, const TellTrouble& tell,
                            const Patience& patience = {});

// FAILED_PRECONDITION: one address is of IPv4 and the other of IPv6, which Gloo cannot connect.
absl::Status CheckFamilies(int64_t rank, const std::string& host, const Peer& peer);

// Raises the limit of open files of this process as far as possible. FAILED_PRECONDITION with
// train::Cause::kNodeFault: the limit is too low to connect with world_size - 1 others, `meshes`
// times.
absl::Status CheckOpenFiles(int64_t rank, int64_t world_size, int meshes);

// Returns the error. An error because of too many open files becomes FAILED_PRECONDITION with
// train::Cause::kNodeFault, and says what to do.
absl::Status ExplainOpenFiles(const absl::Status& error);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_REACH_H_
