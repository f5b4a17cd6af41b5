// The decisions of one transfer: a file that an agent sends and a client receives, through the
// coordinator. One piece is on its way at a time: the agent's next piece is read when the client
// has taken the one before, so whoever is slow slows the other one down. Pure.
#ifndef MUSTER_COORDINATOR_SERVICE_TRANSFER_CORE_H_
#define MUSTER_COORDINATOR_SERVICE_TRANSFER_CORE_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster::service {

// Not thread-safe.
class TransferCore {
 public:
  // What the caller must do, in this order.
  struct Acts {
    bool write = false;  // the piece that arrived, to the client
    bool read = false;   // the agent's next piece
    std::optional<absl::Status> end_client;
    std::optional<absl::Status> end_agent;
  };
  enum class Piece { kData, kLast, kFailure };

  // For how long the agent may not begin, and then nothing may move.
  static constexpr absl::Duration kBegin = absl::Seconds(20);
  static constexpr absl::Duration kMove = absl::Seconds(60);

  // `node`: the agent's, for errors.
  TransferCore(std::string node, absl::Time now) : node_(std::move(node)), moved_(now) {}

  // The agent's stream with this transfer has come: its first piece follows with Arrived.
  Acts AgentCame(absl::Time now);
  // A piece. `failure`: that of kFailure.
  Acts Arrived(Piece piece, const absl::Status& failure, absl::Time now);
  // There is no other piece: the agent's stream is broken, or ended without a last one.
  Acts NothingArrived();
  // The agent's stream is broken. If a piece is being read, NothingArrived follows.
  Acts AgentLeft();
  // The client has taken the piece; or its stream is broken.
  Acts Written(bool ok, absl::Time now);
  Acts ClientLeft();
  // Time has passed.
  Acts Ticked(absl::Time now);
  // The coordinator ends it.
  Acts End(const absl::Status& why);

  // No act follows, except the end of a stream that was being written or read.
  bool ended() const { return ended_; }

 private:
  Acts Finish(const absl::Status& client, const absl::Status& agent);

  std::string node_;
  absl::Time moved_;
  bool agent_came_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool last_ = false;
  bool ended_ = false;
  // How the streams end once nothing is being written to the one and read from the other.
  std::optional<absl::Status> client_end_;
  std::optional<absl::Status> agent_end_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_TRANSFER_CORE_H_
