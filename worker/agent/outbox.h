// What an agent has to say to the coordinator, in the order in which it goes out: a heartbeat
// before all else, a worker's lines before its exit, other lines where nothing else waits.
#ifndef MUSTER_WORKER_AGENT_OUTBOX_H_
#define MUSTER_WORKER_AGENT_OUTBOX_H_

#include <deque>
#include <optional>

#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/log_queue.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

// Not thread-safe, while the queue of lines is: workers may add to that at any time.
class Outbox {
 public:
  // `logs` outlives this object.
  explicit Outbox(LogQueue* logs) : logs_(*logs) {}

  void Push(v1::AgentMessage message);
  // It waits until all lines that this worker has written are taken.
  void PushAfterLogs(const WorkerId& worker, v1::AgentMessage message);
  // Takes the place of a heartbeat that still waits.
  void PushHeartbeat(v1::AgentMessage heartbeat);

  // What goes out next. `welcomed`: the coordinator takes lines of any worker. nullopt: nothing
  // waits.
  std::optional<v1::AgentMessage> Take(bool welcomed);

  // All but the lines.
  void Clear() { waiting_.clear(); }

 private:
  struct Outgoing {
    v1::AgentMessage message;
    // The lines of this worker go first.
    std::optional<WorkerId> after_logs_of;
  };

  LogQueue& logs_;
  std::deque<Outgoing> waiting_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_OUTBOX_H_
