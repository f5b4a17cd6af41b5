#include "coordinator/service/transfer_core.h"

#include "absl/strings/str_cat.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

absl::Status Broken(const std::string& what) {
  return Refuse(absl::StatusCode::kUnavailable, "DOWNLOAD_BROKEN", what);
}

}  // namespace

TransferCore::Actions TransferCore::Finish(const absl::Status& client, const absl::Status& agent) {
  Actions actions;
  if (ended_) return actions;
  ended_ = true;
  if (writing_) {
    client_end_ = client;
  } else {
    actions.end_client = client;
  }
  if (reading_) {
    agent_end_ = agent;
  } else if (agent_came_) {
    actions.end_agent = agent;
  }
  return actions;
}

TransferCore::Actions TransferCore::AgentCame(absl::Time now) {
  if (ended_ || agent_came_) {
    return {.end_agent = Refuse(absl::StatusCode::kNotFound, "TRANSFER_NOT_FOUND",
                                "nobody waits for this file any more")};
  }
  agent_came_ = true;
  moved_ = now;
  return {};
}

TransferCore::Actions TransferCore::Arrived(Piece piece, const absl::Status& failure,
                                            absl::Time now) {
  reading_ = false;
  if (ended_) {
    Actions actions;
    actions.end_agent.swap(agent_end_);
    return actions;
  }
  if (piece == Piece::kFailure) return Finish(failure, absl::OkStatus());
  moved_ = now;
  writing_ = true;
  last_ = piece == Piece::kLast;
  return {.write = true};
}

TransferCore::Actions TransferCore::NothingArrived() {
  reading_ = false;
  if (!agent_end_.has_value()) return AgentLeft();
  Actions actions;
  actions.end_agent.swap(agent_end_);
  return actions;
}

TransferCore::Actions TransferCore::AgentLeft() {
  return Finish(
      Broken(absl::StrCat("the agent of node '", node_, "' stopped sending before the end")),
      ClientGone());
}

TransferCore::Actions TransferCore::Written(bool ok, absl::Time now) {
  writing_ = false;
  if (client_end_.has_value()) {
    Actions actions;
    actions.end_client.swap(client_end_);
    return actions;
  }
  if (ended_) return {};
  if (!ok) return Finish(ClientGone(), ClientGone());
  if (last_) return Finish(absl::OkStatus(), absl::OkStatus());
  moved_ = now;
  reading_ = true;
  return {.read = true};
}

TransferCore::Actions TransferCore::ClientLeft() { return Finish(ClientGone(), ClientGone()); }

TransferCore::Actions TransferCore::Ticked(absl::Time now) {
  if (now - moved_ < (agent_came_ ? kMove : kBegin)) return {};
  const std::string waited = absl::FormatDuration(agent_came_ ? kMove : kBegin);
  if (writing_) {
    const absl::Status slow = Broken(absl::StrCat("the client took nothing for ", waited));
    return Finish(slow, slow);
  }
  const absl::Status silent =
      Broken(absl::StrCat("the agent of node '", node_, "' sent nothing for ", waited));
  return Finish(silent, silent);
}

TransferCore::Actions TransferCore::End(const absl::Status& why) { return Finish(why, why); }

}  // namespace muster::service
