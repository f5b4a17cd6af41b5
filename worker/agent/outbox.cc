#include "worker/agent/outbox.h"

#include <utility>

#include "worker/agent/wire.h"

namespace muster::agent {

void Outbox::Push(v1::AgentMessage message) { waiting_.push_back({.message = std::move(message)}); }

void Outbox::PushAfterLogs(const WorkerId& worker, v1::AgentMessage message) {
  waiting_.push_back({.message = std::move(message), .after_logs_of = worker});
}

void Outbox::PushHeartbeat(v1::AgentMessage heartbeat) {
  // It comes first, because the lease depends on it. For a coordinator that reads slowly one
  // heartbeat is enough.
  if (!waiting_.empty() && waiting_.front().message.has_heartbeat()) waiting_.pop_front();
  waiting_.push_front({.message = std::move(heartbeat)});
}

std::optional<v1::AgentMessage> Outbox::Take(bool welcomed) {
  if (waiting_.empty() || waiting_.front().after_logs_of.has_value()) {
    if (!welcomed) return std::nullopt;
    auto batch = waiting_.empty() ? logs_.Take() : logs_.TakeFrom(*waiting_.front().after_logs_of);
    if (batch.has_value()) return ToMessage(*std::move(batch));
  }
  if (waiting_.empty()) return std::nullopt;
  v1::AgentMessage message = std::move(waiting_.front().message);
  waiting_.pop_front();
  return message;
}

}  // namespace muster::agent
