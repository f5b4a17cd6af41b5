// An attachment is what this agent has of its coordinator: the stream, its heartbeats, and the
// lease (common/lease). Pure: time is an argument.
#ifndef MUSTER_WORKER_AGENT_CORE_ATTACHMENT_H_
#define MUSTER_WORKER_AGENT_CORE_ATTACHMENT_H_

#include <optional>

#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "worker/agent/core/effects.h"
#include "worker/agent/core/events.h"

namespace muster::agent {

class Attachment {
 public:
  void On(const Opened&, absl::Time now);
  void On(const Welcomed& welcome, absl::Time now);
  void On(const HeartbeatAcked& acked) { lease_.Acked(acked.sequence); }
  void On(const NobodyListens& refused) { lease_.Refused(refused.begun); }
  void On(const Broken&);
  // Sends the heartbeat that is due, and drops a stream on which nothing is answered.
  void On(const Ticked&, absl::Time now, Effects& effects);
  // No heartbeat follows: the agent ends.
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
  // When the next Ticked is due; infinite if none is.
  absl::Time NextDeadline() const;

 private:
  Lease lease_;
  bool connected_ = false;
  std::optional<absl::Duration> heartbeat_interval_;  // set while attached
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  // When the newest stream was opened, and whether DropStream followed.
  absl::Time opened_ = absl::InfinitePast();
  bool dropped_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_ATTACHMENT_H_
