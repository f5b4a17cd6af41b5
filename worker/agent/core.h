// The agent's decisions, without threads, processes, clock or network: (state, event, now) -> effects.
//
// What it keeps: the workers that run, and those that ended. An ended worker is reported again on every new
// stream until the coordinator acknowledges it; acknowledged ones are remembered for a while, so that a
// repeated StartWorker starts nothing.
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
#include "worker/agent/worker_record.h"

namespace muster::agent {

// ---- Events ----

// A stream to the coordinator begins; what is sent on it arrives, or Broken follows.
struct Opened {};
// The coordinator took this agent in.
struct Welcomed {
  absl::Duration heartbeat_interval;
  absl::Duration lease;
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
};
struct StopRequested {
  WorkerId worker;
  absl::Duration grace;
};
struct ExitAcked {
  WorkerId worker;
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
};
// This agent was asked to end (SIGTERM). A second time: without grace.
struct ShutdownRequested {};
// NextDeadline() has passed. Harmless at any time.
struct Ticked {};

using Event = std::variant<Opened, Welcomed, Broken, Refused, StartRequested, StopRequested, ExitAcked,
                           Launched, LaunchFailed, Ended, ShutdownRequested, Ticked>;

// ---- Effects, to be carried out in order ----

struct Launch {
  WorkerId worker;
  uint32_t slot = 0;
  bool operator==(const Launch&) const = default;
};
// To the worker's whole group.
struct SendSignal {
  WorkerId worker;
  int signal = 0;
  bool operator==(const SendSignal&) const = default;
};
struct SendHello {
  std::vector<RunningWorker> running;
  std::vector<EndedWorker> exits;
  bool operator==(const SendHello&) const = default;
};
struct SendHeartbeat {
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
// The coordinator was away for a whole lease: for the log.
struct LeaseOver {
  absl::Duration lease;
  bool operator==(const LeaseOver&) const = default;
};
// All is done; OK after ShutdownRequested.
struct Quit {
  absl::Status why;
  bool operator==(const Quit&) const = default;
};

using Effect = std::variant<Launch, SendSignal, SendHello, SendHeartbeat, SendStarted, SendExit, LeaseOver,
                            Quit>;
using Effects = std::vector<Effect>;

enum class AfterLease {
  // Stop the workers and go on trying to attach.
  kKeepTrying,
  // Stop the workers and end: the coordinator that started this agent is gone.
  kQuit,
};

struct CoreOptions {
  uint32_t slots = 1;
  AfterLease after_lease = AfterLease::kKeepTrying;
  // Until the first Welcome says it.
  absl::Duration lease = absl::Seconds(10);
  // Between SIGTERM and SIGKILL where the agent itself stops its workers.
  absl::Duration stop_grace = absl::Seconds(2);
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
  absl::Duration lease() const { return lease_; }

 private:
  struct Running {
    int64_t pid = 0;  // 0 between Launch and Launched.
    // SIGTERM was (or is to be) sent; SIGKILL follows at this time.
    std::optional<absl::Time> kill_at;
    bool killed = false;
  };
  struct Past {
    EndedWorker worker;
    bool acked = false;
  };

  void On(const Opened&, absl::Time now, Effects& effects);
  void On(const Welcomed&, absl::Time now, Effects& effects);
  void On(const Broken&, absl::Time now, Effects& effects);
  void On(const Refused&, absl::Time now, Effects& effects);
  void On(const StartRequested&, absl::Time now, Effects& effects);
  void On(const StopRequested&, absl::Time now, Effects& effects);
  void On(const ExitAcked&, absl::Time now, Effects& effects);
  void On(const Launched&, absl::Time now, Effects& effects);
  void On(const LaunchFailed&, absl::Time now, Effects& effects);
  void On(const Ended&, absl::Time now, Effects& effects);
  void On(const ShutdownRequested&, absl::Time now, Effects& effects);
  void On(const Ticked&, absl::Time now, Effects& effects);

  void Stop(const WorkerId& worker, Running& running, absl::Time kill_at, Effects& effects);
  void StopAll(absl::Time kill_at, Effects& effects);
  void KillOverdue(absl::Time now, Effects& effects);
  void Bury(EndedWorker worker, Effects& effects);
  void QuitWhenDone(absl::Time now, Effects& effects);
  bool AllAcked() const;

  const CoreOptions options_;
  absl::Duration lease_;

  bool connected_ = false;
  std::optional<absl::Duration> heartbeat_interval_;  // Set while attached.
  absl::Time next_heartbeat_ = absl::InfiniteFuture();
  // While not attached: when the lease ends. InfiniteFuture: attached, or it has ended.
  absl::Time lease_end_;

  std::map<WorkerId, Running> running_;
  std::map<WorkerId, Past> past_;
  std::deque<WorkerId> acked_;  // Oldest first: what is forgotten next.

  // Set once this agent is to end: with what.
  std::optional<absl::Status> quitting_;
  absl::Time report_until_ = absl::InfiniteFuture();
  bool quit_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_H_
