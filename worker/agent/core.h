// The agent's decisions, without threads, processes, clock or network: (state, event, now) ->
// effects.
//
// What it keeps: the workers that run, and those that ended. An ended worker is reported again on
// every new stream until the coordinator acknowledges it; acknowledged ones are remembered for a
// while, so that a repeated StartWorker starts nothing. Of processes that former agents could not
// end it keeps the slots.
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

// A stream to the coordinator begins; what is sent on it arrives, or Broken follows.
struct Opened {};
// The coordinator took this agent in.
struct Welcomed {
  absl::Duration heartbeat_interval;
  LeaseTerms lease;
  // Takes what workers left on this agent's disk (SendSpool).
  bool takes_spools = false;
  // It knows AgentDraining: protocol 2.
  bool knows_draining = false;
};
struct HeartbeatAcked {
  uint64_t sequence = 0;
  // Changes while the workers get on, where this agent is emptied; 0: the coordinator does not say.
  uint64_t workers_activity = 0;
};
// A connection that was tried at `begun` was refused by the coordinator's host, so nobody listens
// there; or by the coordinator itself, which can neither take anybody in nor give anything away
// while it cannot write its store.
struct NobodyListens {
  absl::Time begun;
};
// The stream is over.
struct Broken {};
// The coordinator will not have this agent, now or later.
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
// The node is to be emptied, or is not any more.
struct DrainRequested {
  bool drain = false;
  std::string reason;
  // How long the jobs may take, from the first request that says so; absent: drain_timeout.
  std::optional<absl::Duration> deadline;
};
// What the workers have written to disks so far, all together: while it grows, a drain is not over.
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
// The coordinator has all that SendSpool asked for.
struct SpoolTold {
  WorkerId worker;
};
// This agent was asked to end (SIGTERM): the jobs here get time to save a checkpoint and to go on
// elsewhere. A second time: without grace.
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
  // It has no part in this agent's lease.
  bool continue_when_cut_off = false;
  bool operator==(const Launch&) const = default;
};
// To the worker's whole group.
struct SendSignal {
  WorkerId worker;
  int signal = 0;
  bool operator==(const SendSignal&) const = default;
};
// This agent is going to stop; its jobs have so long to save and to end.
struct SendDraining {
  std::string reason;
  absl::Duration deadline;
  bool operator==(const SendDraining&) const = default;
};
// The process in the slot does not end although it was killed; or it has ended at last.
struct SendQuarantine {
  uint32_t slot = 0;
  RunningWorker worker;
  bool quarantined = false;
  bool operator==(const SendQuarantine&) const = default;
};
// The process in the slot does not end although it was killed: this agent's own end does not wait
// for it, and the next agent here is to know of it.
struct Hangs {
  uint32_t slot = 0;
  RunningWorker worker;
  bool operator==(const Hangs&) const = default;
};
// A process of Hangs or of HangingFound has ended at last.
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
  // 0: no acknowledgement is wanted.
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
// What the worker left on the disk is to be told; SpoolTold follows, or the stream breaks. Its exit
// waits for that.
struct SendSpool {
  WorkerId worker;
  bool operator==(const SendSpool&) const = default;
};
// Heartbeats are not answered on this stream: the connection may be dead. Another is to be tried;
// Broken follows.
struct DropStream {
  bool operator==(const DropStream&) const = default;
};
// The lease is over, after so long without an answer: for the log.
struct LeaseOver {
  absl::Duration unanswered;
  bool operator==(const LeaseOver&) const = default;
};
// All is done; OK after ShutdownRequested.
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
  // worker and nothing to tell does not wait for a coordinator that is down: it ends a lease after
  // the last answer.
  kQuit,
};

struct CoreOptions {
  uint32_t slots = 1;
  AfterLease after_lease = AfterLease::kKeepTrying;
  // Until the first Welcome says it.
  absl::Duration lease = absl::Seconds(10);
  // Between SIGTERM and SIGKILL where the agent itself stops its workers.
  absl::Duration stop_grace = absl::Seconds(2);
  // How long the jobs may take to save and to end where this agent is stopped or drained; while
  // they write or get on, it is put off to `standstill` after they last did (at least three
  // heartbeats, where it is the coordinator that says so).
  absl::Duration drain_timeout = absl::Minutes(5);
  absl::Duration standstill = absl::Seconds(10);
  // A process that lives so long after SIGKILL hangs in the kernel.
  absl::Duration kill_patience = absl::Seconds(10);
  // How long a shutdown waits for the last exits to be acknowledged.
  absl::Duration report_grace = absl::Seconds(2);
  // Acknowledged exits that are remembered.
  size_t remembered_exits = 256;
};

class Core {
 public:
  Core(const CoreOptions& options, absl::Time now);

  Effects Handle(const Event& event, absl::Time now);
  // When the next Ticked is due; InfiniteFuture when nothing is.
  absl::Time NextDeadline() const;
  // The last that a coordinator named.
  // Infinite before the first welcome, and with an older coordinator while its stream stands.
  absl::Time lease_end() const { return lease_.End(); }
  absl::Duration lease() const {
    return lease_.terms().has_value() ? lease_.terms()->lease : options_.lease;
  }
  // Workers are waited for that may write: WritesSeen is wanted every second or so.
  bool draining() const { return drain_.has_value() && Waits(); }

 private:
  struct Running {
    int64_t pid = 0;  // 0 between Launch and Launched.
    // SIGTERM was (or is to be) sent; SIGKILL follows at this time.
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
    // That of DrainRequested.
    absl::Duration deadline;
    absl::Time until;
    // As they were seen last; 0: not yet.
    uint64_t bytes = 0;
    uint64_t activity = 0;
    // What moves is not ended before.
    absl::Time moves_until = absl::InfinitePast();
    // The time was over, and the workers were told to end.
    bool over = false;
  };
  struct Past {
    EndedWorker worker;
    bool acked = false;
    // Reports of it wait on the disk: to the coordinator it runs until they are told.
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

  // When the lease is over; infinite where that has been acted on.
  absl::Time LeaseEnd() const;
  void EndLease(absl::Time now, Effects& effects);
  void Stop(const WorkerId& worker, Running& running, Cause cause, absl::Time kill_at,
            Effects& effects);
  void StopAll(Cause cause, absl::Time kill_at, Effects& effects);
  // When what is drained is told to end.
  absl::Time DrainEnd() const;
  // A worker runs whose end can be waited for.
  bool Waits() const;
  void KillOverdue(absl::Time now, Effects& effects);
  // The process, which hung in the slot, has ended.
  void EndQuarantine(uint32_t slot, const RunningWorker& worker, Effects& effects);
  void Bury(EndedWorker worker, Effects& effects, bool spooled = false);
  void QuitWhenDone(absl::Time now, Effects& effects);
  bool AllAcked() const;

  const CoreOptions options_;
  Lease lease_;

  bool connected_ = false;
  // Of the coordinator that is attached to.
  bool takes_spools_ = false;
  std::optional<absl::Duration> heartbeat_interval_;  // Set while attached.
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  // Of the stream that is open.
  absl::Time opened_ = absl::InfinitePast();
  bool dropped_ = false;
  // Until the first welcome there is no lease; the agent has so long to find its coordinator.
  const absl::Time first_welcome_until_;
  // The end of a lease that has been acted on.
  absl::Time ended_lease_ = absl::InfinitePast();

  std::map<WorkerId, Running> running_;
  std::map<WorkerId, Past> past_;
  std::deque<WorkerId> acked_;  // Oldest first: what is forgotten next.
  // What former agents could not end. They are no workers any more: only their slots are announced.
  std::map<WorkerId, HangingFound> left_hanging_;

  // What runs is to save and to end, and nothing new starts.
  std::optional<Drain> drain_;
  // ShutdownRequested came.
  bool shutdown_ = false;
  // As the newest Welcome says.
  bool knows_draining_ = false;
  // Set once this agent is to end: with what.
  std::optional<absl::Status> quitting_;
  absl::Time report_until_ = absl::InfiniteFuture();
  bool quit_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_H_
