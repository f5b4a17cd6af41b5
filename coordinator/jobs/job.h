// What the coordinator knows about one job: plain values, almost all of them durable. The state
// machine over them is in life.h.
#ifndef MUSTER_COORDINATOR_JOBS_JOB_H_
#define MUSTER_COORDINATOR_JOBS_JOB_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/phase.h"
#include "coordinator/membership/worker_id.h"

namespace muster::jobs {

// What a rank computes on, and what a slot offers. The numbers are stored.
enum class Device : uint8_t { kCpu = 1, kCuda = 2 };

// The parts of the job file that the coordinator uses.
struct Plan {
  uint32_t world_size = 1;
  Device device = Device::kCpu;
  // Of LibTorch, in each rank.
  uint32_t threads = 1;
  // Of all fit stages. 0: there are none, or only the workers know (JobProgress::fit_steps).
  uint64_t total_steps = 0;
  uint32_t max_restarts = 0;
  uint32_t keep_checkpoints = 3;
  // Among jobs that wait for their first start the highest goes first.
  int32_t priority = 0;
  // Ranks on a node that is cut off continue to train. They are not replaced until the node is back
  // or an operator says that they have ended.
  bool continue_when_cut_off = false;
  // membership::ProgressLimits, where the job says so itself.
  std::optional<absl::Duration> no_progress;
  std::optional<absl::Duration> startup;
  // The job file's. Not stored, because it follows from the spec.
  std::string name;
  // The directory in which the job's own folder for checkpoints lies; empty: it writes none. Not
  // stored, either.
  std::string checkpoint_directory;
  // The oldest worker protocol that knows all settings of the job; 0: any. Not stored either.
  uint32_t worker_protocol = 0;
  // How long it may run; infinite: as long as it takes.
  absl::Duration time_limit = absl::InfiniteDuration();
};

// One rank of the newest generation: a process on a slot.
struct Rank {
  std::string node;
  uint32_t slot = 0;
  // Where other nodes reach this one.
  std::string host;
  // Of the agent process that starts it; its workers die with it.
  std::string agent_incarnation;
  std::string incarnation;
  int64_t pid = 0;
  uint64_t step = 0;
  // The newest report of this process that was applied.
  uint64_t acked_report = 0;
  bool session_started = false;
  // It has done all its work, or has stopped because of a command.
  bool finished = false;
  // Its process is gone.
  bool exited = false;
  // Its process has attached to the coordinator. From then on its end does not count as a fault of
  // the node's programs.
  bool attached = false;
  // The first step to which it brought no input, while it has none; else 0.
  uint64_t joined_since = 0;
  // What keeps it from starting, as it says itself; empty: nothing. Not stored.
  std::string trouble;

  bool operator==(const Rank&) const = default;
};

// How a checkpoint became known. Values are those of v1::Checkpoint::Origin and are stored: never
// renumbered.
enum class Origin {
  // The worker that wrote it reported it.
  kRecorded = 1,
  // It was found in the job's folder, continues the training of this job, and counts.
  kAdopted = 2,
  // It was found in the job's folder, or counted before. It is kept, and does not count.
  kFound = 3,
};

struct Checkpoint {
  uint64_t step = 0;
  uint64_t generation = 0;
  std::string path;
  absl::Time create_time = absl::InfinitePast();
  // Set if it was found damaged and was renamed.
  std::string bad_reason;
  Origin origin = Origin::kRecorded;
  // Of kFound: why it does not count.
  std::string origin_reason;
  // Of the files of all ranks. 0, and no durations: not known.
  uint64_t bytes = 0;
  // How long training waited for it, and how long it took until its files were durable.
  absl::Duration stall;
  absl::Duration write_time;
  // The validation pass after its step was the best one of the job until then.
  bool best = false;

  bool operator==(const Checkpoint&) const = default;
};

// What is known of a rank's end. RootCause() in failure.h says which kinds count as the cause.
// Values are stored: never renumbered.
enum class FailureKind {
  // The worker said so itself.
  kReported = 1,
  // Ended by a signal after it had attached, silent, or hanging.
  kLost = 2,
  // An exit code without a report before it.
  kExitCode = 3,
  // It is a consequence of another rank's end.
  kConsequence = 4,
  // The node's fault, not the job's: its process could not be started, ended before its first
  // message, or was lost with its agent; or the worker said so.
  kNodeFault = 5,
};

// One rank's end within a generation that failed.
struct FailureNote {
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string node;
  uint64_t step = 0;
  FailureKind kind = FailureKind::kReported;
  // Another start would end in the same way.
  bool permanent = false;
  std::string reason;
  std::string log_tail;
  // For programs: that of v1::WorkerFailure::Kind, FINAL_SAVE_FAILED for example. Empty: nothing
  // special.
  std::string code;
  // Of a rank that hung: membership::Hang's.
  std::vector<std::string> collectives;

  bool operator==(const FailureNote&) const = default;
};

// What happened to a job beyond its steps. AddEvent() of events.h makes them.
struct JobEvent {
  // From 1 within the job, without gaps.
  uint64_t number = 0;
  absl::Time time = absl::InfinitePast();
  uint64_t generation = 0;
  uint64_t step = 0;
  // UPPER_SNAKE_CASE, stable.
  std::string reason;
  std::string message;

  bool operator==(const JobEvent&) const = default;
};

// The saves that failed since the last good one.
struct SaveFailure {
  // Of the newest one.
  uint64_t step = 0;
  std::string message;
  absl::Time time = absl::InfinitePast();
  // How many in a row.
  uint32_t count = 0;

  bool operator==(const SaveFailure&) const = default;
};

// A change of which parameters are trained.
struct TrainabilityChange {
  // The version that it made.
  uint64_t version = 0;
  uint64_t generation = 0;
  absl::Time time = absl::InfinitePast();
  // The command that asked for it; 0: the model's own code.
  uint64_t command = 0;
  // v1::TrainabilityChange, serialized, without what is said here; the cores never look inside.
  std::string contents;

  bool operator==(const TrainabilityChange&) const = default;
};

// Which parameters are trained, according to the newest report of rank 0.
struct Trainability {
  // 0: no worker has said anything yet.
  uint64_t version = 0;
  // v1::TrainabilityInForce, serialized: the rules and what is pending; and the one that has the
  // model's parameters.
  std::string in_force;
  std::string parameters;
  // The newest ones, by version.
  std::vector<TrainabilityChange> history;

  bool operator==(const Trainability&) const = default;
};

// How an attempt ended that was followed by another.
struct AttemptEnd {
  uint32_t attempt = 0;
  State state = State::kFailed;
  std::string state_reason;
  std::string reason_code;
  absl::Time end_time = absl::InfinitePast();
  uint64_t step = 0;

  bool operator==(const AttemptEnd&) const = default;
};

// A retry gave a setting of the job file another value.
struct SettingChange {
  // The attempt that began with it.
  uint32_t attempt = 0;
  // The newest generation before it.
  uint64_t generation = 0;
  absl::Time time = absl::InfinitePast();
  // As the connection proved it.
  std::string requester;
  // "optimizer.adamw.lr".
  std::string path;
  // As in a job file; empty: it was left out.
  std::string old_value;
  std::string new_value;

  bool operator==(const SettingChange&) const = default;
};

// A job without its lists is of a fixed size, however long it has run. It is in three parts, and
// each of them is stored by itself when it has changed.

// What was handed in. Only a retry with other settings changes `spec` and `plan`; any other later
// change is not stored (job_rows.h).
struct JobIdentity {
  std::string id;
  // Of submission, from 1: who came first.
  uint64_t number = 0;
  // v1::JobSpec with its defaults filled in, serialized; the cores never look inside.
  std::string spec;
  Plan plan;
  absl::Time create_time = absl::InfinitePast();
  // Who submitted it, as the connection proved it.
  std::string submitter;
  // The absolute path of the job file at the submitter's; empty: there is none.
  std::string job_file;
};

// What decides on the job's state besides its phase. It changes when something happens to the job,
// not with its steps.
struct JobFacts {
  // Why it is in its state.
  std::string state_reason;
  // The same for programs: UPPER_SNAKE_CASE, stable. Empty: nothing special. Whoever sets
  // state_reason sets or clears it.
  std::string reason_code;
  // No version above it is ever shown before a higher ceiling is stored.
  uint64_t version_ceiling = 1;
  // Infinite past: not yet.
  absl::Time start_time = absl::InfinitePast();

  uint64_t generation = 0;
  // The highest generation that has ever shown itself, in the job's folder or on a node: after a
  // database was restored it may be a later one. The next generation is above it.
  uint64_t newest_generation_seen = 0;
  // By the generations of this attempt that are over.
  absl::Duration time_used;
  // What a person decided for the next start: from step 0, or from this directory.
  bool from_scratch = false;
  std::string start_from;
  // Counts from 1; grows by 1 each time that the job continues after its end.
  uint32_t attempt = 1;
  // Starts after a failure of the job itself.
  uint32_t restarts = 0;
  // The restarts since the job last made progress (life.h); plan.max_restarts is their limit.
  uint32_t restarts_used = 0;
  // Generations in a row that ended by the fault of a node, since the job last made progress.
  uint32_t node_faults = 0;
  // Of these, how many in a row ended because a worker did not start (conclusion.h).
  uint32_t start_failures = 0;
  // The latest step at which it failed: a job without checkpoints makes progress when it passes
  // this step.
  uint64_t failed_step = 0;
  // The step at which the newest generation began to train: a job with checkpoints makes progress
  // with a checkpoint after this step.
  uint64_t started_step = 0;
  std::string exported_path;
  // Absent: the last save did not fail.
  std::optional<SaveFailure> save_failure;

  bool operator==(const JobFacts&) const = default;
};

// life_row.h says how it is stored.
struct JobLife : JobFacts {
  Phase phase;

  State state() const { return StateOf(phase); }
  // Null: no processes of `generation` may exist.
  const life::Alive* alive() const { return AliveIn(phase); }
  life::Alive* alive() { return AliveIn(&phase); }
  bool live() const { return alive() != nullptr; }
  // Its processes were told to end before their work was done.
  bool ending() const { return ToldToEnd(phase).has_value(); }
  bool stop_requested() const { return std::holds_alternative<life::Stopping>(phase); }
  // The job is or was being stopped because its time is used up.
  bool time_up() const;
  // Why the generation must end, although nothing failed; empty: there is no such reason.
  std::string interruption() const { return live() ? alive()->interruption : ""; }
  // After a failure it does not start before this time; infinite past: it may start at once.
  absl::Time not_before() const;
  // Infinite past: it has not ended.
  absl::Time end_time() const;
  bool terminal() const { return std::holds_alternative<life::Ended>(phase); }
  // The job has no processes until a person decides how it continues.
  bool halted() const;
  // In line for slots.
  bool waiting() const { return Waits(phase); }
};

// How far it has come. It changes with each step.
struct JobProgress {
  std::string stage;
  uint64_t step = 0;
  // v1::StepMetrics of the newest step, of the newest validation pass and of the newest test,
  // serialized; empty: there is none yet. The cores never look inside.
  std::string newest_step;
  std::string newest_validation;
  std::string newest_test;
  // Optimizer steps of all fit stages, as a session has told. 0: none has.
  uint64_t fit_steps = 0;
  // The first so many stages are over, the newest of them after so many steps. A session that
  // starts from this step does not run them again.
  uint64_t stages_done = 0;
  uint64_t stages_done_step = 0;
  uint64_t skipped_steps = 0;
  uint64_t log_sequence = 0;

  bool operator==(const JobProgress&) const = default;
};

struct JobFields : JobIdentity, JobLife, JobProgress {
  // Grows with every change that a watcher sees. Not stored: version_ceiling, which seldom changes,
  // is.
  uint64_t version = 1;
};

// Optimizer steps of all fit stages, as they are known now. A stage that ends early has fewer steps
// than the job file says. The next session tells the new number. If none follows, it is the step at
// which the job SUCCEEDED.
uint64_t TotalSteps(const JobFields& job);

// True if the job's work survives the end of its processes.
inline bool WritesCheckpoints(const JobFields& job) {
  return !job.plan.checkpoint_directory.empty();
}

struct Job : JobFields {
  std::vector<Rank> ranks;
  // Those that count, and those that were found damaged. Oldest first.
  std::vector<Checkpoint> checkpoints;
  // Whole ones in the job's folder that do not count (kFound). By generation and step.
  std::vector<Checkpoint> found_checkpoints;
  // Paths of checkpoints that no longer count and that no rank 0 has reported as removed.
  std::vector<std::string> dropped_checkpoints;
  // Of the newest generation that failed, in the order in which they became known.
  std::vector<FailureNote> failures;
  // Of the attempts before this one, oldest first.
  std::vector<AttemptEnd> ended_attempts;
  // Oldest first.
  std::vector<SettingChange> setting_changes;
  commands::CommandLog commands;
  Trainability trainability;
  // The newest ones, oldest first. Stored one by one as they come.
  std::vector<JobEvent> events;

  // ---- Not stored.
  // Nodes with ranks of it that are cut off and not replaced.
  std::set<std::string> cut_off;
  // Events up to this number are stored, or on their way to the store.
  uint64_t stored_events = 0;
  // The newest commands that processes may know: those of `generation`, and those of earlier
  // generations.
  uint64_t told_commands = 0;
  uint64_t told_before = 0;
  // The last Warning(job) that was logged.
  std::string warned;

  // 0: none yet.
  uint64_t newest_event() const { return events.empty() ? 0 : events.back().number; }
  membership::WorkerId Worker(uint32_t rank) const {
    return {id, generation, rank, ranks[rank].incarnation};
  }
};

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_JOB_H_
