// The phases of a job's life. Each has the facts that exist only there, so that a fact of another
// phase can be neither written nor read. life.h says how one becomes another.
#ifndef MUSTER_COORDINATOR_JOBS_PHASE_H_
#define MUSTER_COORDINATOR_JOBS_PHASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"

namespace muster::jobs {

// Values are those of v1::Job::State and are stored: never renumbered.
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

// What exists while processes of the newest generation may exist.
struct Alive {
  // Since when, where the generation lives.
  absl::Time since = absl::InfinitePast();
  std::optional<Rendezvous> rendezvous;
  // Where rank 0 may put the weights; empty: it has not asked.
  std::string export_granted;
  // Why training ended before its last step although nobody asked for it; empty: it did not.
  std::string ended_early;
  // Why the generation must end although nothing failed, for people; empty: there is no such
  // reason.
  std::string interruption;
  // A rank has ended before its work was done, to continue on other nodes.
  bool preempted = false;
  // Why the job waits for a person as soon as the generation has ended; empty: it does not.
  std::string halt_reason;
  // Not stored: when processes that have not ended by themselves by then are told to end (again).
  absl::Time end_deadline = absl::InfiniteFuture();

  bool operator==(const Alive&) const = default;
};

// In line for the slots of the first start.
struct Queued {};

// Not all ranks have begun their session.
struct Starting {
  Alive alive;
  // A command has paused the job: it is paused again as soon as all ranks have begun.
  bool paused = false;
};

struct Running {
  Alive alive;
};

// The job has no processes until a person decides how it continues. `reason`: why it halted.
struct Halted {
  std::string reason;
};
// By a command, until it is resumed: the processes wait, and keep their slots. Or halted: there
// are none.
struct Paused {
  std::variant<Alive, Halted> how;
};

// The generation ends before its work is done. Its processes were first told to end at `told`,
// which is not stored.
struct Ending {
  Alive alive;
  absl::Time told = absl::InfinitePast();
};
// In line for the slots of the next start, after a wait until `not_before`; infinite past: it may
// start at once.
struct Waiting {
  absl::Time not_before = absl::InfinitePast();
};
struct Recovering {
  std::variant<Ending, Waiting> how;
  // As in Starting.
  bool paused = false;
};

// A stop is due, or the time is up: the ranks save and end, and the job is over.
struct Stopping {
  enum class Why { kAsked, kTimeIsUp };

  Alive alive;
  Why why = Why::kAsked;
  // When the processes were first told to end; absent: the ranks save, and end by themselves.
  std::optional<absl::Time> told;
  // As in Starting.
  bool paused = false;
};

struct Ended {
  enum class Outcome { kSucceeded, kFailed, kCancelled };

  Outcome outcome = Outcome::kFailed;
  absl::Time time = absl::InfinitePast();
  // The job was being stopped because its time was used up.
  bool time_up = false;
};

}  // namespace life

using Phase = std::variant<life::Queued, life::Starting, life::Running, life::Paused,
                           life::Recovering, life::Stopping, life::Ended>;

State StateOf(const Phase& phase);
// Null: there are no processes.
const life::Alive* AliveIn(const Phase& phase);
life::Alive* AliveIn(Phase* phase);
// When the processes of an ending generation were first told to end; absent: they were not.
std::optional<absl::Time> ToldToEnd(const Phase& phase);
// In line for slots.
bool Waits(const Phase& phase);
// A command has paused the job, now or as soon as it runs again.
bool PausedByCommand(const Phase& phase);

// ---- Changes of a phase with processes; the others are made by assignment.
// The processes were told at this time, which replaces an earlier one, to end.
void BeginToEnd(Phase* phase, absl::Time told);
void BeginStop(Phase* phase, life::Stopping::Why why);
// A generation at work, of which all ranks have begun their session, or not.
void SettleWork(Phase* phase, bool all_started);
// A command has paused the job, or continues it. No effect on a phase without processes.
void SetPaused(Phase* phase, bool paused);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_PHASE_H_
