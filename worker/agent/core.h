// The agent's decisions, without threads, processes, clock or network: (state, event, now) ->
// effects.
//
// The core keeps the workers that run and those that have ended. An ended worker is reported again
// on every new stream until the coordinator acknowledges it. Acknowledged ones are remembered for a
// while, so that a repeated StartWorker starts nothing. It also keeps the slots of processes that
// former agents could not end.
#ifndef MUSTER_WORKER_AGENT_CORE_H_
#define MUSTER_WORKER_AGENT_CORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/lease/lease.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

// ---- Events ----

// A stream to the coordinator begins. Everything that is sent on it arrives, or Broken follows.
struct Opened {};
// The coordinator accepted this agent.
struct Welcomed {
  absl::Duration heartbeat_interval;
  LeaseTerms lease;
  // It accepts the reports that workers left on this agent's disk (SendSpool).
  bool takes_spools = false;
  // It knows AgentDraining: protocol 2.
  bool knows_draining = false;
};
struct HeartbeatAcked {
  uint64_t sequence = 0;
  // While this agent's node is emptied: changes as long as the workers make progress. 0: the
  // coordinator does not report it.
  uint64_t workers_activity = 0;
};
// A connection that was tried at `begun` was refused by the coordinator's host, so nobody listens
// there; or by the coordinator itself, which can neither accept a peer nor replace a process while
// it cannot write its store.
struct NobodyListens {
  absl::Time begun;
};
// The stream is over.
struct Broken {};
// The coordinator refuses this agent permanently.
struct Refused {
  absl::Status why;
};
struct StartRequested {
  WorkerId worker;
  uint32_t slot = 0;
  // It is not ended with the lease.
  bool continue_when_cut_off = false;
};
struct StopRequested {
  WorkerId worker;
  absl::Duration grace;
};
struct ExitAcked {
  WorkerId worker;
};
// The node should be emptied, or a drain is over.
struct DrainRequested {
  bool drain = false;
  std::string reason;
  // How long the jobs may take, counted from the first request with this value; absent:
  // drain_timeout.
  std::optional<absl::Duration> deadline;
};
// How many bytes all workers together have written to disks so far: while this grows, the end of a
// drain is delayed.
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
// A launched worker ended.
struct Ended {
  WorkerId worker;
  Ending ending;
  std::string log_tail;
  // It left reports on this agent's disk.
  bool spooled = false;
};
// A worker of a former agent left reports on this disk. Before the first Opened.
struct SpoolFound {
  WorkerId worker;
};
// A process of a former agent, which that one could not end, still hangs in the slot. Before the
// first Opened.
struct HangingFound {
  uint32_t slot = 0;
  RunningWorker worker;
};
// A process of HangingFound is gone.
struct HangingGone {
  WorkerId worker;
};
// The coordinator has acknowledged everything that SendSpool sent.
struct SpoolTold {
  WorkerId worker;
};
// This agent was asked to end (SIGTERM): the jobs here get time to save a checkpoint and to move to
// other nodes. A second time: the workers are killed at once.
struct ShutdownRequested {};
// NextDeadline() has passed. Harmless at any time.
struct Ticked {};

using Event = std::variant<Opened, Welcomed, HeartbeatAcked, NobodyListens, Broken, Refused,
                           StartRequested, StopRequested, ExitAcked, DrainRequested, WritesSeen,
                           Launched, LaunchFailed, Ended, SpoolFound, SpoolTold, HangingFound,
                           HangingGone, ShutdownRequested, Ticked>;

// ---- Effects, to be carried out in order ----

struct Launch {
  WorkerId worker;
  uint32_t slot = 0;
  // It does not end with this agent's lease.
  bool continue_when_cut_off = false;
  bool operator==(const Launch&) const = default;
};
// To the worker's whole group.
struct SendSignal {
  WorkerId worker;
  int signal = 0;
  bool operator==(const SendSignal&) const = default;
};
// This agent is going to stop; its jobs have the time `deadline` to save and to end.
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
// Heartbeats are not answered on this stream, so the connection may be dead: try another one.
// Broken follows.
struct DropStream {
  bool operator==(const DropStream&) const = default;
};
// The lease is over, after the time `unanswered` without an answer. For the log.
struct LeaseOver {
  absl::Duration unanswered;
  bool operator==(const LeaseOver&) const = default;
};
// The agent should end; `why` is OK after ShutdownRequested.
struct Quit {
  absl::Status why;
  bool operator==(const Quit&) const = default;
};

using Effect =
    std::variant<Launch, SendSignal, SendDraining, SendQuarantine, Hangs, HangsNoMore, SendHello,
                 SendHeartbeat, SendStarted, SendExit, SendSpool, DropStream, LeaseOver, Quit>;
using Effects = std::vector<Effect>;

enum class AfterLease {
  // Kill the workers and go on trying to attach.
  kKeepTrying,
  // Kill the workers and end: the coordinator that started this agent is gone. An agent that has no
  // worker and no reports to send does not wait for a coordinator that is down: it ends one lease
  // after the last answer.
  kQuit,
};

struct CoreOptions {
  uint32_t slots = 1;
  AfterLease after_lease = AfterLease::kKeepTrying;
  // Used until the first Welcome, which has the real value.
  absl::Duration lease = absl::Seconds(10);
  // Between SIGTERM and SIGKILL when the agent itself stops its workers.
  absl::Duration stop_grace = absl::Seconds(2);
  // How long the jobs may take to save and to end when this agent is stopped or drained. While they
  // write or make progress, the end is delayed until `standstill` after they last did (at least
  // three heartbeats, if the coordinator reported the progress).
  absl::Duration drain_timeout = absl::Minutes(5);
  absl::Duration standstill = absl::Seconds(10);
  // A process that still lives this long after SIGKILL hangs in the kernel.
  absl::Duration kill_timeout = absl::Seconds(10);
  // How long a shutdown waits for the last exits to be acknowledged.
  absl::Duration report_grace = absl::Seconds(2);
  // Acknowledged exits that are remembered.
  size_t remembered_exits = 256;
};

class Core {
 public:
  Core(const CoreOptions& options, absl::Time now);

  Effects Handle(const Event& event, absl::Time now);
  // When the next Ticked is due; InfiniteFuture if none is.
  absl::Time NextDeadline() const;
  // Infinite before the first welcome, and with an older coordinator while its stream is open.
  absl::Time lease_end() const { return lease_.End(); }
  absl::Duration lease() const {
    return lease_.terms().has_value() ? lease_.terms()->lease : options_.lease;
  }
  // True while a drain waits for workers that may write: then WritesSeen should come about every
  // second.
  bool draining() const { return drain_.has_value() && Waits(); }

 private:
  struct Running {
    int64_t pid = 0;  // 0 between Launch and Launched.
    // SIGTERM was sent (or will be); SIGKILL follows at this time.
    std::optional<absl::Time> kill_at;
    bool killed = false;
    // Why it was told to end.
    Cause cause = Cause::kUnknown;
    bool continue_when_cut_off = false;
    uint32_t slot = 0;
    // Once it was killed: when it hangs in the kernel.
    absl::Time hangs_at = absl::InfiniteFuture();
    bool quarantined = false;
  };
  struct Drain {
    std::string reason;
    Cause cause = Cause::kUnknown;
    // The one of DrainRequested.
    absl::Duration deadline;
    absl::Time until;
    // The newest known values; 0: none yet.
    uint64_t bytes = 0;
    uint64_t activity = 0;
    // Because the workers make progress, they are not ended before this time.
    absl::Time moves_until = absl::InfinitePast();
    // The time is over, and the workers were told to end.
    bool over = false;
  };
  struct Past {
    EndedWorker worker;
    bool acked = false;
    // Reports of it wait on the disk. For the coordinator it runs until they are sent.
    bool spooled = false;
  };

  void On(const Opened&, absl::Time now, Effects& effects);
  void On(const Welcomed&, absl::Time now, Effects& effects);
  void On(const HeartbeatAcked&, absl::Time now, Effects& effects);
  void On(const NobodyListens&, absl::Time now, Effects& effects);
  void On(const Broken&, absl::Time now, Effects& effects);
  void On(const Refused&, absl::Time now, Effects& effects);
  void On(const StartRequested&, absl::Time now, Effects& effects);
  void On(const StopRequested&, absl::Time now, Effects& effects);
  void On(const ExitAcked&, absl::Time now, Effects& effects);
  void On(const DrainRequested&, absl::Time now, Effects& effects);
  void On(const WritesSeen&, absl::Time now, Effects& effects);
  void On(const Launched&, absl::Time now, Effects& effects);
  void On(const LaunchFailed&, absl::Time now, Effects& effects);
  void On(const Ended&, absl::Time now, Effects& effects);
  void On(const SpoolFound&, absl::Time now, Effects& effects);
  void On(const SpoolTold&, absl::Time now, Effects& effects);
  void On(const HangingFound&, absl::Time now, Effects& effects);
  void On(const HangingGone&, absl::Time now, Effects& effects);
  void On(const ShutdownRequested&, absl::Time now, Effects& effects);
  void On(const Ticked&, absl::Time now, Effects& effects);

  // When the lease is over; infinite if that has already been acted on.
  absl::Time LeaseEnd() const;
  void EndLease(absl::Time now, Effects& effects);
  void Stop(const WorkerId& worker, Running& running, Cause cause, absl::Time kill_at,
            Effects& effects);
  void StopAll(Cause cause, absl::Time kill_at, Effects& effects);
  // When the workers of a drain are told to end.
  absl::Time DrainEnd() const;
  // True if a worker runs whose end can be waited for.
  bool Waits() const;
  void KillOverdue(absl::Time now, Effects& effects);
  // The process, which hung in the slot, has ended.
  void EndQuarantine(uint32_t slot, const RunningWorker& worker, Effects& effects);
  void RecordEnd(EndedWorker worker, Effects& effects, bool spooled = false);
  void QuitWhenDone(absl::Time now, Effects& effects);
  bool AllAcked() const;

  const CoreOptions options_;
  Lease lease_;

  bool connected_ = false;
  // Of the coordinator to which this agent is attached.
  bool takes_spools_ = false;
  std::optional<absl::Duration> heartbeat_interval_;  // Set while attached.
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  // Of the open stream.
  absl::Time opened_ = absl::InfinitePast();
  bool dropped_ = false;
  // Until the first welcome there is no lease. The agent must find its coordinator before this
  // time.
  const absl::Time first_welcome_until_;
  // The end of a lease that has been acted on.
  absl::Time ended_lease_ = absl::InfinitePast();

  std::map<WorkerId, Running> running_;
  std::map<WorkerId, Past> past_;
  std::deque<WorkerId> acked_;  // Oldest first: what is forgotten next.
  // Processes that former agents could not end. They do not count as workers any more: only their
  // slots are reported.
  std::map<WorkerId, HangingFound> left_hanging_;

  // Set while the node is drained: the workers should save and end, and nothing new starts.
  std::optional<Drain> drain_;
  // ShutdownRequested came.
  bool shutdown_ = false;
  // As the newest Welcome says.
  bool knows_draining_ = false;
  // Set once this agent should end: the status of Quit.
  std::optional<absl::Status> quitting_;
  absl::Time report_until_ = absl::InfiniteFuture();
  bool quit_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_H_
