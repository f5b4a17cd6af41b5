#include "worker/agent/core/attachment.h"

#include <algorithm>

namespace muster::agent {

void Attachment::On(const Opened&, absl::Time now) {
  connected_ = true;
  opened_ = now;
  dropped_ = false;
}

void Attachment::On(const Welcomed& welcome, absl::Time now) {
  heartbeat_interval_ = welcome.heartbeat_interval;
  lease_.Welcomed(welcome.lease, opened_);
  next_heartbeat_ = now + welcome.heartbeat_interval;
}

void Attachment::On(const Broken&) {
  connected_ = false;
  lease_.Broken();
  heartbeat_interval_.reset();
  EndHeartbeats();
}

void Attachment::On(const Ticked&, absl::Time now, Effects& effects) {
  if (now >= next_heartbeat_) {
    effects.push_back(SendHeartbeat{lease_.Beat(now)});
    next_heartbeat_ = now + *heartbeat_interval_;
  }
  if (!dropped_ && now >= lease_.SilentFrom()) {
    dropped_ = true;
    effects.push_back(DropStream{});
  }
}

absl::Time Attachment::NextDeadline() const {
  return dropped_ ? next_heartbeat_ : std::min(next_heartbeat_, lease_.SilentFrom());
}

}  // namespace muster::agent
