// Whether the ranks of a generation reach each other at the addresses of their nodes' agents
// (`muster-agent --host`). The libraries that connect the ranks try for minutes and say nothing
// meanwhile; this says after seconds which address does not answer, and what to do.
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

// A port that accepts connections and does nothing with them, as long as the object lives.
class Door {
 public:
  // `host`: a numeric address of this machine. INVALID_ARGUMENT: it is not numeric.
  // FAILED_PRECONDITION with train::Cause::kNodeFault: this machine does not have it. UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<Door>> Open(const std::string& host);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  uint16_t port() const { return port_; }

 private:
  Door(int fd, uint16_t port) : fd_(fd), port_(port) {}

  const int fd_;
  const uint16_t port_;
};

struct Peer {
  int64_t rank = 0;
  // Numeric.
  std::string host;
  uint16_t port = 0;
};

struct Patience {
  // When others are told that a peer does not answer.
  absl::Duration tell = absl::Seconds(3);
  // When to give up.
  absl::Duration end = absl::Seconds(60);
};

// Takes what keeps this rank from starting; empty: nothing any more.
using TellTrouble = std::function<void(const std::string& trouble)>;

// Connects to the peer, again and again. FAILED_PRECONDITION: its address is one that leads every
// machine to itself, and nothing listens there: another start would end in the same way.
// UNAVAILABLE: it did not answer in time.
absl::Status AwaitReachable(const Peer& peer, const TellTrouble& tell,
                            const Patience& patience = {});

// FAILED_PRECONDITION: one of the addresses is of IPv4 and the other of IPv6, which Gloo cannot
// connect.
absl::Status CheckFamilies(int64_t rank, const std::string& host, const Peer& peer);

// FAILED_PRECONDITION with train::Cause::kNodeFault: this process may not open as many files as it
// needs to connect with world_size - 1 others, `meshes` times. Allows it as many as it may have at
// all.
absl::Status CheckOpenFiles(int64_t rank, int64_t world_size, int meshes);

// The error, and what to do about it if it says that no more files may be opened; then it is
// FAILED_PRECONDITION with train::Cause::kNodeFault.
absl::Status ExplainOpenFiles(const absl::Status& error);

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_REACH_H_
