// What the agent's core (core.h) decides: processes to start and to signal, messages to send, and
// when to end. Effects are carried out in order.
#ifndef MUSTER_WORKER_AGENT_CORE_EFFECTS_H_
#define MUSTER_WORKER_AGENT_CORE_EFFECTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

struct Launch {
  WorkerId worker;
  uint32_t slot = 0;
  // The worker does not end with this agent's lease.
  bool continue_when_cut_off = false;
  uint32_t threads = 1;
  std::string secret;
  bool operator==(const Launch&) const = default;
};
// Goes to the worker's whole process group.
struct SendSignal {
  WorkerId worker;
  int signal = 0;
  bool operator==(const SendSignal&) const = default;
};
// This agent is going to end; its jobs have the time `deadline` to save and to end.
struct SendDraining {
  std::string reason;
  absl::Duration deadline;
  bool operator==(const SendDraining&) const = default;
};
// The process in the slot does not end although it was killed; or it has finally ended.
struct SendQuarantine {
  uint32_t slot = 0;
  RunningWorker worker;
  bool quarantined = false;
  bool operator==(const SendQuarantine&) const = default;
};
// The process in the slot does not end although it was killed: this agent's own end does not wait
// for it, and it must be recorded for the next agent here.
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

#endif  // MUSTER_WORKER_AGENT_CORE_EFFECTS_H_
