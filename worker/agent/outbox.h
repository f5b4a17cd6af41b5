// The messages of an agent that wait to be sent to the coordinator, and their order: a heartbeat
// comes before everything else, a worker's log lines come before its exit, and other log lines are
// sent when nothing else waits.
#ifndef MUSTER_WORKER_AGENT_OUTBOX_H_
#define MUSTER_WORKER_AGENT_OUTBOX_H_

#include <deque>
#include <optional>

#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/log_queue.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// Not thread-safe. The queue of log lines is thread-safe: lines may be added to it at any time.
class Outbox {
 public:
  // `logs` outlives this object.
  explicit Outbox(LogQueue* logs) : logs_(*logs) {}

  void Push(v1::AgentMessage message);
  // The message waits until all lines that this worker has written are taken.
  void PushAfterLogs(const WorkerId& worker, v1::AgentMessage message);
  // Replaces a heartbeat that still waits.
  void PushHeartbeat(v1::AgentMessage heartbeat);

  // The next message to send; nullopt: nothing waits that may be sent now. `welcomed`: the
  // coordinator has accepted the stream. Before that, log lines and what comes after them wait,
  // because the lines would be lost if it refused the stream.
  std::optional<v1::AgentMessage> Take(bool welcomed);

  // Drops all messages, but not the log lines.
  void Clear() { waiting_.clear(); }

 private:
  struct Outgoing {
    v1::AgentMessage message;
    // The log lines of this worker are sent first.
    std::optional<WorkerId> after_logs_of;
  };

  LogQueue& logs_;
  std::deque<Outgoing> waiting_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_OUTBOX_H_
