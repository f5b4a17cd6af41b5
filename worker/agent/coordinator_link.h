// The agent's connection to the coordinator: one stream after the other, with a pause between two
// attempts, and the messages that are sent over it.
#ifndef MUSTER_WORKER_AGENT_COORDINATOR_LINK_H_
#define MUSTER_WORKER_AGENT_COORDINATOR_LINK_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/knock.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/core/worker_record.h"
#include "worker/agent/log_queue.h"
#include "worker/agent/mailbox.h"

namespace muster::agent {

// The messages that wait to be sent, and their order: a heartbeat comes before everything else, a
// worker's log lines come before its exit, and other log lines are sent when nothing else waits.
//
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

struct LinkOptions {
  std::string coordinator;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // As in AgentOptions.
  absl::Duration first_retry;
  absl::Duration last_retry;
};

// Not thread-safe: one thread makes the calls and carries out the mailbox's tasks.
class CoordinatorLink {
 public:
  // Called on that thread, in a task.
  struct Events {
    std::function<void(const v1::AgentDirective&)> on_directive;
    // The stream has ended. Unless this is final, call PlanNext.
    std::function<void(const absl::Status&)> on_closed;
    // An attempt to connect that began at this time was refused: no process listens.
    std::function<void(absl::Time begun)> on_nobody_listens;
  };

  // `logs` and `mailbox` outlive this object.
  CoordinatorLink(LinkOptions options, LogQueue* logs, Mailbox* mailbox, Events events);
  ~CoordinatorLink();

  // When to call Connect; infinite while there is a stream.
  absl::Time connect_at() const { return connect_at_; }
  // Opens a stream, for which the outbox is empty.
  void Connect();
  // When the newest stream was opened.
  absl::Time opened() const { return opened_; }
  // The coordinator has accepted the stream.
  void BeWelcome();
  // Ends a stream on which no answer comes; the next one uses a new connection.
  void Drop(absl::Duration lease);
  // The stream has ended because of `why`: decides when the next one is opened.
  void PlanNext(const absl::Status& why, absl::Duration lease);
  // Ends the stream without an event.
  void Close();

  Outbox& outbox() { return outbox_; }
  // Writes the next message if the stream can take one.
  void Pump();

 private:
  class Stream;

  void OnClosed(const absl::Status& status);
  void NewChannel(absl::Duration lease);

  const LinkOptions options_;
  Mailbox& mailbox_;
  const Events events_;
  Outbox outbox_;
  std::minstd_rand jitter_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stream> stream_;
  // The number of the newest stream: what still comes from an older one is ignored.
  uint64_t attempt_ = 0;
  bool writing_ = false;
  bool welcomed_ = false;
  // That there is no connection is already logged.
  bool away_ = false;
  absl::Duration retry_;
  absl::Time connect_at_;
  absl::Time opened_;
  Knocker knocker_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_COORDINATOR_LINK_H_
