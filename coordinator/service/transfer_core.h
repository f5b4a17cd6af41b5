// The decisions of one transfer: an agent sends a file, and a client receives it through the
// coordinator. One piece is transferred at a time: the agent's next piece is read when the client
// has taken the piece before. So neither end gets ahead of the other. Pure.
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
  // The actions for the caller, in this order.
  struct Actions {
    bool write = false;  // the piece that arrived, to the client
    bool read = false;   // the agent's next piece
    std::optional<absl::Status> end_client;
    std::optional<absl::Status> end_agent;
  };
  enum class Piece { kData, kLast, kFailure };

  // The time within which the agent must begin, and then the longest time without a piece.
  static constexpr absl::Duration kBegin = absl::Seconds(20);
  static constexpr absl::Duration kMove = absl::Seconds(60);

  // `node`: the agent's node, for errors.
  TransferCore(std::string node, absl::Time now) : node_(std::move(node)), moved_(now) {}

  // Handles the agent's stream for this transfer. Its first piece follows with Arrived.
  Actions AgentCame(absl::Time now);
  // Handles a piece. `failure`: the error of a kFailure piece.
  Actions Arrived(Piece piece, const absl::Status& failure, absl::Time now);
  // Handles the end of the agent's stream without a last piece: the stream broke or ended.
  Actions NothingArrived();
  // Handles a broken agent's stream. If a piece is being read, NothingArrived follows.
  Actions AgentLeft();
  // Handles the client's taking of a piece, or its broken stream.
  Actions Written(bool ok, absl::Time now);
  Actions ClientLeft();
  // Handles a tick.
  Actions Ticked(absl::Time now);
  // Ends the transfer.
  Actions End(const absl::Status& why);

  // Returns whether the transfer is over. Then the only further act is the end of a stream that was
  // being written or read.
  bool ended() const { return ended_; }

 private:
  Actions Finish(const absl::Status& client, const absl::Status& agent);

  std::string node_;
  absl::Time moved_;
  bool agent_came_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool last_ = false;
  bool ended_ = false;
  // The statuses with which the streams end when nothing is being written or read any more.
  std::optional<absl::Status> client_end_;
  std::optional<absl::Status> agent_end_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_TRANSFER_CORE_H_
