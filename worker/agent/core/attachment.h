// The agent's attachment to its coordinator: the stream, its heartbeats, and the lease
// (common/lease). Pure: time is an argument.
#ifndef MUSTER_WORKER_AGENT_CORE_ATTACHMENT_H_
#define MUSTER_WORKER_AGENT_CORE_ATTACHMENT_H_

#include <algorithm>
#include <optional>

#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "worker/agent/core/events.h"

namespace muster::agent {

class Attachment {
 public:
  void On(const Opened&, absl::Time now) {
    connected_ = true;
    opened_ = now;
    dropped_ = false;
  }
  void On(const Welcomed& welcome, absl::Time now) {
    heartbeat_interval_ = welcome.heartbeat_interval;
    lease_.Welcomed(welcome.lease, opened_);
    next_heartbeat_ = now + welcome.heartbeat_interval;
  }
  void On(const HeartbeatAcked& acked) { lease_.Acked(acked.sequence); }
  void On(const NobodyListens& refused) { lease_.Refused(refused.begun); }
  void On(const Broken&) {
    connected_ = false;
    lease_.Broken();
    heartbeat_interval_.reset();
    EndHeartbeats();
  }
  // Sends the heartbeat that is due, and drops a stream on which nothing is answered.
  void On(const Ticked&, absl::Time now, Effects& effects) {
    if (now >= next_heartbeat_) {
      effects.push_back(SendHeartbeat{lease_.Beat(now)});
      next_heartbeat_ = now + *heartbeat_interval_;
    }
    if (!dropped_ && now >= lease_.SilentFrom()) {
      dropped_ = true;
      effects.push_back(DropStream{});
    }
  }
  // Stops the heartbeats, because the agent ends.
  void EndHeartbeats() { next_heartbeat_ = absl::InfiniteFuture(); }

  // A stream is open.
  bool connected() const { return connected_; }
  // A stream is open, and the coordinator has accepted this agent on it.
  bool attached() const { return heartbeat_interval_.has_value(); }
  // Zero while the agent is not attached.
  absl::Duration heartbeat_interval() const {
    return heartbeat_interval_.value_or(absl::ZeroDuration());
  }
  const Lease& lease() const { return lease_; }
  // The time at which the next Ticked is due; infinite if none is due.
  absl::Time NextDeadline() const {
    return dropped_ ? next_heartbeat_ : std::min(next_heartbeat_, lease_.SilentFrom());
  }

 private:
  Lease lease_;
  bool connected_ = false;
  std::optional<absl::Duration> heartbeat_interval_;  // set while attached
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  // The time at which the newest stream was opened, and whether DropStream followed.
  absl::Time opened_ = absl::InfinitePast();
  bool dropped_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_ATTACHMENT_H_
