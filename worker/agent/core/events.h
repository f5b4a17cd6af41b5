// The events that the agent's core (core.h) is told, and the effects that it decides. Events are
// the coordinator's messages, changes of the stream and of the workers, and requests to this agent.
#ifndef MUSTER_WORKER_AGENT_CORE_EVENTS_H_
#define MUSTER_WORKER_AGENT_CORE_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// A stream to the coordinator begins. Each message sent on the stream arrives, or Broken follows.
struct Opened {};
// The coordinator has accepted this agent.
struct Welcomed {
  absl::Duration heartbeat_interval;
  LeaseTerms lease;
};
struct HeartbeatAcked {
  uint64_t sequence = 0;
  // A number that changes as long as the workers make progress, while this agent's node is drained.
  // 0: the coordinator does not report it.
  uint64_t workers_activity = 0;
};
// A connection that was tried at `begun` was refused. Either nobody listens at the coordinator's
// address, or the coordinator itself refuses because it cannot write its store. Without its store
// it can neither accept a peer nor replace a process.
struct NobodyListens {
  absl::Time begun;
};
// The stream has ended.
struct Broken {};
// The coordinator refuses this agent permanently.
struct Refused {
  absl::Status why;
};
struct StartRequested {
  WorkerId worker;
  uint32_t slot = 0;
  // The worker continues when the lease ends.
  bool continue_when_cut_off = false;
  uint32_t threads = 1;
  // The secret by which the worker shows that this agent started it.
  std::string secret;
  bool operator==(const StartRequested&) const = default;
};
struct StopRequested {
  WorkerId worker;
  absl::Duration grace;
};
struct ExitAcked {
  WorkerId worker;
};
// The node must be drained, or its drain is over.
struct DrainRequested {
  bool drain = false;
  std::string reason;
  // The time that the jobs may take, counted from the first request with this value; absent:
  // CoreOptions::drain_timeout.
  std::optional<absl::Duration> deadline;
};
// The number of bytes that all workers together have written to disks so far. While this number
// grows, the end of a drain is delayed.
struct WritesSeen {
  uint64_t bytes = 0;
};
// The answers to Launch.
struct Launched {
  WorkerId worker;
  int64_t pid = 0;
};
struct LaunchFailed {
  WorkerId worker;
  std::string reason;
};
// A launched worker has ended.
struct Ended {
  WorkerId worker;
  Ending ending;
  std::string log_tail;
  // The worker left reports on this agent's disk.
  bool spooled = false;
};
// A worker of a former agent left reports on this disk. Comes before the first Opened.
struct SpoolFound {
  WorkerId worker;
};
// A process that a former agent could not end still hangs in the slot. Comes before the first
// Opened.
struct HangingFound {
  uint32_t slot = 0;
  RunningWorker worker;
};
// A process of HangingFound has ended.
struct HangingGone {
  WorkerId worker;
};
// The coordinator has acknowledged everything that SendSpool sent.
struct SpoolTold {
  WorkerId worker;
};
// A request to end this agent (SIGTERM). The jobs here get time to save a checkpoint and to move to
// other nodes. A second request kills the workers at once.
struct ShutdownRequested {};
// Core::NextDeadline() has passed. Harmless at any time.
struct Ticked {};

using Event = std::variant<Opened, Welcomed, HeartbeatAcked, NobodyListens, Broken, Refused,
                           StartRequested, StopRequested, ExitAcked, DrainRequested, WritesSeen,
                           Launched, LaunchFailed, Ended, SpoolFound, SpoolTold, HangingFound,
                           HangingGone, ShutdownRequested, Ticked>;

// The effects: processes to start and to signal, messages to send, and the agent's end. They are
// carried out in order.

// The worker must be started as it was asked for.
using Launch = StartRequested;
// A signal for the worker's whole process group.
struct SendSignal {
  WorkerId worker;
  int signal = 0;
  bool operator==(const SendSignal&) const = default;
};
// The announcement that this agent is going to end. Its jobs have the time `deadline` to save and
// to end.
struct SendDraining {
  std::string reason;
  absl::Duration deadline;
  bool operator==(const SendDraining&) const = default;
};
// The process in the slot does not end after SIGKILL (`quarantined`), or it has finally ended.
struct SendQuarantine {
  uint32_t slot = 0;
  RunningWorker worker;
  bool quarantined = false;
  bool operator==(const SendQuarantine&) const = default;
};
// The process in the slot does not end after SIGKILL. This agent's own end does not wait for the
// process. The process must be recorded for the next agent on this node.
struct Hangs {
  uint32_t slot = 0;
  RunningWorker worker;
  bool operator==(const Hangs&) const = default;
};
// A process of Hangs or of HangingFound has finally ended.
struct HangsNoMore {
  WorkerId worker;
  bool operator==(const HangsNoMore&) const = default;
};
struct SendHello {
  std::vector<RunningWorker> running;
  std::vector<EndedWorker> exits;
  std::optional<SendDraining> draining;
  std::vector<SendQuarantine> quarantined;
  bool operator==(const SendHello&) const = default;
};
struct SendHeartbeat {
  // 0: no acknowledgement is expected.
  uint64_t sequence = 0;
  bool operator==(const SendHeartbeat&) const = default;
};
struct SendStarted {
  RunningWorker worker;
  bool operator==(const SendStarted&) const = default;
};
struct SendExit {
  EndedWorker worker;
  bool operator==(const SendExit&) const = default;
};
// The reports that the worker left on the disk must be sent; SpoolTold follows, or the stream
// breaks. The worker's exit is reported after that.
struct SendSpool {
  WorkerId worker;
  bool operator==(const SendSpool&) const = default;
};
// Heartbeats are not answered on this stream, so the connection may be dead: another one must be
// tried. Broken follows.
struct DropStream {
  bool operator==(const DropStream&) const = default;
};
// The lease is over, after the time `unanswered` without an answer. For the log.
struct LeaseOver {
  absl::Duration unanswered;
  bool operator==(const LeaseOver&) const = default;
};
// The agent must end; `why` is OK after ShutdownRequested.
struct Quit {
  absl::Status why;
  bool operator==(const Quit&) const = default;
};

using Effect =
    std::variant<Launch, SendSignal, SendDraining, SendQuarantine, Hangs, HangsNoMore, SendHello,
                 SendHeartbeat, SendStarted, SendExit, SendSpool, DropStream, LeaseOver, Quit>;
using Effects = std::vector<Effect>;

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_EVENTS_H_
