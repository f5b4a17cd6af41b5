// The phases of a job's life. Each phase has only its own facts, so that no code can read or write
// a fact of another phase. life.h describes the changes from phase to phase.
#ifndef MUSTER_COORDINATOR_JOBS_PHASE_H_
#define MUSTER_COORDINATOR_JOBS_PHASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"

namespace muster::jobs {

// The state that clients see. Values are those of v1::Job::State and are stored: never renumbered.
enum class State {
  kQueued = 1,
  kStarting = 2,
  kRunning = 3,
  kRecovering = 4,
  kStopping = 5,
  kSucceeded = 6,
  kFailed = 7,
  kCancelled = 8,
  kPaused = 9,
};
const char* Name(State state);

struct Rendezvous {
  std::string host;
  uint32_t port = 0;

  bool operator==(const Rendezvous&) const = default;
};

namespace life {

// The facts that exist while processes of the newest generation may exist.
struct Alive {
  // The time since which the generation lives.
  absl::Time since = absl::InfinitePast();
  std::optional<Rendezvous> rendezvous;
  // The path to which rank 0 may move the weights; empty if rank 0 has not asked.
  std::string export_granted;
  // The reason why training ended before its last step without a request; empty if it did not.
  std::string ended_early;
  // The reason why the generation must end although nothing failed, for people; empty if there is
  // none.
  std::string interruption;
  // Whether a rank has ended before its work was done, to continue on other nodes.
  bool preempted = false;
  // The reason why the job halts when the generation has ended; empty if it does not halt.
  std::string halt_reason;
  // The time at which processes that have not ended by themselves are told to end (again). Not
  // stored.
  absl::Time end_deadline = absl::InfiniteFuture();

  bool operator==(const Alive&) const = default;
};

// A job in line for the slots of its first start.
struct Queued {};

// A generation of which not all ranks have begun their session.
struct Starting {
  Alive alive;
  // Whether a command has paused the job. The job is paused again when all ranks have begun.
  bool paused = false;
};

struct Running {
  Alive alive;
};

// The job has no processes until a person decides how it continues. `reason`: why it halted.
struct Halted {
  std::string reason;
};
// The job is paused by a command until it is resumed: the processes wait, and keep their slots. Or
// the job is halted, without processes.
struct Paused {
  std::variant<Alive, Halted> how;
};

// The generation ends before its work is done. `told` is the time at which its processes were first
// told to end; it is not stored.
struct Ending {
  Alive alive;
  absl::Time told = absl::InfinitePast();
};
// A job in line for the slots of its next start, at `not_before` or later; infinite past for an
// immediate start.
struct Waiting {
  absl::Time not_before = absl::InfinitePast();
};
struct Recovering {
  std::variant<Ending, Waiting> how;
  // The same as in Starting.
  bool paused = false;
};

// A stop is due, or the time is up. The ranks save and end, and the job is over.
struct Stopping {
  enum class Why { kAsked, kTimeIsUp };

  Alive alive;
  Why why = Why::kAsked;
  // The time at which the processes were first told to end; absent while the ranks save and end by
  // themselves.
  std::optional<absl::Time> told;
  // The same as in Starting.
  bool paused = false;
};

struct Ended {
  enum class Outcome { kSucceeded, kFailed, kCancelled };

  Outcome outcome = Outcome::kFailed;
  absl::Time time = absl::InfinitePast();
  // Whether the job was being stopped because its time was used up.
  bool time_up = false;
};

}  // namespace life

using Phase = std::variant<life::Queued, life::Starting, life::Running, life::Paused,
                           life::Recovering, life::Stopping, life::Ended>;

State StateOf(const Phase& phase);
// Null if there are no processes.
const life::Alive* AliveIn(const Phase& phase);
life::Alive* AliveIn(Phase* phase);
// Returns when the processes of an ending generation were first told to end; absent if they were
// not.
std::optional<absl::Time> ToldToEnd(const Phase& phase);
// Returns whether the job is in line for slots.
bool Waits(const Phase& phase);
// Returns whether a command has paused the job, now or as soon as it runs again.
bool PausedByCommand(const Phase& phase);

// ---- Changes of a phase with processes. Assignments make all other changes.
// Records the time at which the processes were told to end, which replaces an earlier time.
void BeginToEnd(Phase* phase, absl::Time told);
void BeginStop(Phase* phase, life::Stopping::Why why);
// Sets the phase of a generation at work. `all_started`: all ranks have begun their session.
void SettleWork(Phase* phase, bool all_started);
// Records that a command has paused the job or continues it. No effect without processes.
void SetPaused(Phase* phase, bool paused);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PHASE_H_
