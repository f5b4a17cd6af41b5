// The agent's connection to the coordinator: its streams, one after the other, with pauses between
// attempts, and the sent messages.
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
#include "common/rpc/connection_probe.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/core/worker_record.h"
#include "worker/agent/log_queue.h"
#include "worker/agent/mailbox.h"

namespace muster::agent {

// The messages that wait to be sent, and their order:
// - a heartbeat comes before everything else;
// - a worker's log lines come before its exit;
// - other log lines are sent when nothing else waits.
//
// Not thread-safe. The queue of log lines is thread-safe: any thread may add lines at any time.
class Outbox {
 public:
  // `logs` outlives this object.
  explicit Outbox(LogQueue* logs) : logs_(*logs) {}

  void Push(v1::AgentMessage message);
  // Queues a message that waits until all lines of this worker are taken.
  void PushAfterLogs(const WorkerId& worker, v1::AgentMessage message);
  // Replaces a heartbeat that still waits.
  void PushHeartbeat(v1::AgentMessage heartbeat);

  // Returns the next message to send; nullopt: no message may be sent now. `welcomed`: the
  // coordinator has accepted the stream. Before the welcome, log lines and the messages after them
  // wait, because a stream that is refused would lose the lines.
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
  // The pauses of AgentOptions.
  absl::Duration first_retry;
  absl::Duration last_retry;
};

// Not thread-safe: one thread makes the calls and carries out the mailbox's tasks.
class CoordinatorLink {
 public:
  // The functions called in the mailbox's tasks, by the thread that carries out the tasks.
  struct Events {
    std::function<void(const v1::AgentDirective&)> on_directive;
    // The stream has ended. The receiver calls PlanNext, unless the end is final.
    std::function<void(const absl::Status&)> on_closed;
    // An attempt to connect that began at this time was refused: no process listens.
    std::function<void(absl::Time begun)> on_nobody_listens;
  };

  // `logs` and `mailbox` outlive this object.
  CoordinatorLink(LinkOptions options, LogQueue* logs, Mailbox* mailbox, Events events);
  ~CoordinatorLink();

  // The time at which to call Connect; infinite while there is a stream.
  absl::Time connect_at() const { return connect_at_; }
  // Opens a stream. The outbox must be empty.
  void Connect();
  // The time at which the newest stream was opened.
  absl::Time opened() const { return opened_; }
  // The coordinator has accepted the stream.
  void BeWelcome();
  // Ends a stream on which no answer comes. The next stream uses a new connection.
  // `lease`: the length of the agent's lease. The new connection notices a lost peer within about
  // half of a lease.
  void Drop(absl::Duration lease);
  // Decides when the next stream is opened. `why`: the reason why the last stream has ended.
  // `lease`: as in Drop; the pause is short enough for several attempts within a lease.
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
  // The number of the newest stream. Messages from older streams are ignored.
  uint64_t attempt_ = 0;
  bool writing_ = false;
  bool welcomed_ = false;
  // True when the log already says that there is no connection.
  bool away_ = false;
  absl::Duration retry_;
  absl::Time connect_at_;
  absl::Time opened_;
  ConnectionProbe probe_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_COORDINATOR_LINK_H_
