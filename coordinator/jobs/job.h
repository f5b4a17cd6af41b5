// The coordinator's knowledge of one job, as plain values. Almost all of them are durable. life.h
// has the state machine over them.
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

// The device that a rank computes on and that a slot offers. The numbers are stored.
enum class Device : uint8_t { kCpu = 1, kCuda = 2 };

// The parts of the job file that the coordinator uses.
struct Plan {
  uint32_t world_size = 1;
  Device device = Device::kCpu;
  // The threads of LibTorch in each rank.
  uint32_t threads = 1;
  // The optimizer steps of all fit stages; 0 if there are none, or if only the workers know the
  // number (JobProgress::fit_steps).
  uint64_t total_steps = 0;
  uint32_t max_restarts = 0;
  uint32_t keep_checkpoints = 3;
  // The priority among jobs that wait for their first start. The highest starts first.
  int32_t priority = 0;
  // Whether ranks on a node that is cut off continue to train. Such ranks are not replaced until
  // the node is back or an operator says that they have ended.
  bool continue_when_cut_off = false;
  // membership::ProgressLimits of this job; absent: the coordinator's.
  std::optional<absl::Duration> no_progress;
  std::optional<absl::Duration> startup;
  // The job's name in the job file. Not stored, because it follows from the spec.
  std::string name;
  // The directory that contains the job's own folder for checkpoints; empty if the job writes none.
  // Not stored, because it follows from the spec.
  std::string checkpoint_directory;
  // The oldest worker protocol that knows all settings of the job; 0 for any. Not stored either.
  uint32_t worker_protocol = 0;
  // The longest time that the job may run; infinite without a limit.
  absl::Duration time_limit = absl::InfiniteDuration();
};

// One rank of the newest generation: a process on a slot.
struct Rank {
  std::string node;
  uint32_t slot = 0;
  // The host at which other nodes reach this one.
  std::string host;
  // The incarnation of the agent process that starts the rank. The workers of an agent process end
  // with it.
  std::string agent_incarnation;
  std::string incarnation;
  int64_t pid = 0;
  uint64_t step = 0;
  // The newest report of this process that was applied.
  uint64_t acked_report = 0;
  bool session_started = false;
  // The rank has done all its work, or has stopped because of a command.
  bool finished = false;
  // The rank's process is gone.
  bool exited = false;
  // The rank's process has attached to the coordinator. From then on its end does not count as a
  // fault of the node's programs.
  bool attached = false;
  // The first step without input while the rank has no input; else 0.
  uint64_t joined_since = 0;
  // The worker's words why it cannot start; empty if nothing prevents the start. Not stored.
  std::string trouble;

  bool operator==(const Rank&) const = default;
};

// The way in which a checkpoint became known. Values are those of v1::Checkpoint::Origin and are
// stored: never renumbered.
enum class Origin {
  // The worker that wrote the checkpoint reported it.
  kRecorded = 1,
  // The checkpoint was found in the job's folder, continues this job's training, and counts.
  kAdopted = 2,
  // The checkpoint was found in the job's folder, or counted before. It is kept, and does not
  // count.
  kFound = 3,
};

struct Checkpoint {
  uint64_t step = 0;
  uint64_t generation = 0;
  std::string path;
  absl::Time create_time = absl::InfinitePast();
  // The reason why the checkpoint counts as damaged; empty if it is good. Damaged ones are renamed.
  std::string bad_reason;
  Origin origin = Origin::kRecorded;
  // The reason why a checkpoint of kFound does not count.
  std::string origin_reason;
  // The bytes of all ranks' files. If not known, 0, and the durations are 0.
  uint64_t bytes = 0;
  // The time for which training waited, and the time until the files were durable.
  absl::Duration stall;
  absl::Duration write_time;
  // Whether the validation pass after this step was the best of the job until then.
  bool best = false;

  bool operator==(const Checkpoint&) const = default;
};

// The kind of a rank's end. RootCause() in failure.h says which kinds count as the cause. Values
// are stored: never renumbered.
enum class FailureKind {
  // The worker itself reported the failure.
  kReported = 1,
  // The process attached and was then killed by a signal, silent, or hanging.
  kLost = 2,
  // The process ended with an exit code and without a report.
  kExitCode = 3,
  // The end is a consequence of another rank's end.
  kConsequence = 4,
  // The node is at fault, not the job. The process could not be started, ended before its first
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
  // Whether another start would end in the same way.
  bool permanent = false;
  std::string reason;
  std::string log_tail;
  // The code for programs: that of v1::WorkerFailure::Kind, for example FINAL_SAVE_FAILED. Empty if
  // there is no special code.
  std::string code;
  // membership::Hang's collectives, for a rank that hung.
  std::vector<std::string> collectives;

  bool operator==(const FailureNote&) const = default;
};

// An event of a job besides its steps. AddEvent() of events.h makes them.
struct JobEvent {
  // The event's number within the job, from 1, without gaps.
  uint64_t number = 0;
  absl::Time time = absl::InfinitePast();
  uint64_t generation = 0;
  uint64_t step = 0;
  // A stable code in UPPER_SNAKE_CASE.
  std::string reason;
  std::string message;

  bool operator==(const JobEvent&) const = default;
};

// The saves that failed since the last good one.
struct SaveFailure {
  // The step of the newest failed save.
  uint64_t step = 0;
  std::string message;
  absl::Time time = absl::InfinitePast();
  // The number of failed saves in a row.
  uint32_t count = 0;

  bool operator==(const SaveFailure&) const = default;
};

// A change in which parameters are trained.
struct TrainabilityChange {
  // The version that this change made.
  uint64_t version = 0;
  uint64_t generation = 0;
  absl::Time time = absl::InfinitePast();
  // The command that asked for the change; 0 if the model's own code made it.
  uint64_t command = 0;
  // v1::TrainabilityChange, serialized, without the fields above. The cluster does not parse it.
  std::string contents;

  bool operator==(const TrainabilityChange&) const = default;
};

// The parameters that are trained, from the newest report of rank 0.
struct Trainability {
  // The version; 0 if no worker has reported any yet.
  uint64_t version = 0;
  // v1::TrainabilityInForce, serialized, twice: the rules and pending changes, and the model's
  // parameters.
  std::string in_force;
  std::string parameters;
  // The newest changes, by version.
  std::vector<TrainabilityChange> history;

  bool operator==(const Trainability&) const = default;
};

// The end of an attempt that was followed by another attempt.
struct AttemptEnd {
  uint32_t attempt = 0;
  State state = State::kFailed;
  std::string state_reason;
  std::string reason_code;
  absl::Time end_time = absl::InfinitePast();
  uint64_t step = 0;

  bool operator==(const AttemptEnd&) const = default;
};

// A change of a setting of the job file by a retry.
struct SettingChange {
  // The attempt that began with the change.
  uint32_t attempt = 0;
  // The newest generation before the change.
  uint64_t generation = 0;
  absl::Time time = absl::InfinitePast();
  // The requester, as the connection proved it.
  std::string requester;
  // The setting's path, like "optimizer.adamw.lr".
  std::string path;
  // The values, written as in a job file; empty if the setting is left out.
  std::string old_value;
  std::string new_value;

  bool operator==(const SettingChange&) const = default;
};

// ---- The fixed-size fields of a job, in three parts. Each part is stored by itself when it has
// changed.

// The submitted job. Only a retry with other settings changes `spec` and `plan` after the
// submission; other changes are not stored (job_rows.h).
struct JobIdentity {
  std::string id;
  // The job's number in the order of submission, from 1.
  uint64_t number = 0;
  // v1::JobSpec with its defaults filled in, serialized. The cluster does not parse it.
  std::string spec;
  Plan plan;
  absl::Time create_time = absl::InfinitePast();
  // The submitter, as the connection proved it.
  std::string submitter;
  // The absolute path of the job file on the submitter's machine; empty if there is none.
  std::string job_file;
};

// The facts besides the phase that decide on the job's state. They change when something happens to
// the job, and not with each step.
struct JobFacts {
  // The reason for the job's state, for people.
  std::string state_reason;
  // The reason as a stable code in UPPER_SNAKE_CASE; empty if there is no special code. Code that
  // sets state_reason also sets or clears reason_code.
  std::string reason_code;
  // The highest version that may be shown before a higher ceiling is stored.
  uint64_t version_ceiling = 1;
  // The time of the first start; infinite past before it.
  absl::Time start_time = absl::InfinitePast();

  uint64_t generation = 0;
  // The highest generation that was ever found in the job's folder or on a node. After a database
  // was restored, it may be above `generation`. The next generation is above it.
  uint64_t newest_generation_seen = 0;
  // The time used by the generations of this attempt that are over.
  absl::Duration time_used;
  // A person's decision for the next start: from step 0, or from this directory.
  bool from_scratch = false;
  std::string start_from;
  // The number of the attempt, from 1. Each time that the job continues after its end adds 1.
  uint32_t attempt = 1;
  // The number of starts after a failure of the job itself.
  uint32_t restarts = 0;
  // The restarts since the job last made progress (life.h). plan.max_restarts is their limit.
  uint32_t restarts_used = 0;
  // The generations in a row that ended by a fault of a node, since the job last made progress.
  uint32_t node_faults = 0;
  // The part of node_faults, in a row, in which a worker did not start (conclusion.h).
  uint32_t start_failures = 0;
  // The latest step at which the job failed. A job without checkpoints makes progress when it
  // passes this step.
  uint64_t failed_step = 0;
  // The step at which the newest generation began to train. A job with checkpoints makes progress
  // with a checkpoint after this step.
  uint64_t started_step = 0;
  std::string exported_path;
  // The failed saves; absent if the last save did not fail.
  std::optional<SaveFailure> save_failure;

  bool operator==(const JobFacts&) const = default;
};

// The life of a job. life_row.h describes how it is stored.
struct JobLife : JobFacts {
  Phase phase;

  State state() const { return StateOf(phase); }
  // Null if no processes of `generation` can exist.
  const life::Alive* alive() const { return AliveIn(phase); }
  life::Alive* alive() { return AliveIn(&phase); }
  bool live() const { return alive() != nullptr; }
  // Returns whether the job's processes were told to end before their work was done.
  bool ending() const { return ToldToEnd(phase).has_value(); }
  bool stop_requested() const { return std::holds_alternative<life::Stopping>(phase); }
  // Returns whether the job is or was being stopped because its time is used up.
  bool time_up() const;
  // Returns why the generation must end although nothing failed; empty if there is no such reason.
  std::string interruption() const { return live() ? alive()->interruption : ""; }
  // Returns the time before which the job does not start after a failure; infinite past if it may
  // start at once.
  absl::Time not_before() const;
  // Returns when the job ended; infinite past if it has not ended.
  absl::Time end_time() const;
  bool terminal() const { return std::holds_alternative<life::Ended>(phase); }
  // Returns whether the job has no processes until a person decides how it continues.
  bool halted() const;
  // Returns whether the job is in line for slots.
  bool waiting() const { return Waits(phase); }
};

// The job's progress. It changes with each step.
struct JobProgress {
  std::string stage;
  uint64_t step = 0;
  // v1::StepMetrics of the newest step, the newest validation pass and the newest test, serialized;
  // empty if there is none yet. The cluster does not parse them.
  std::string newest_step;
  std::string newest_validation;
  std::string newest_test;
  // The optimizer steps of all fit stages, as a session has reported; 0 if none has.
  uint64_t fit_steps = 0;
  // The number of stages, from the first, that are over, and the step after the newest of them. A
  // session that starts from this step does not run these stages again.
  uint64_t stages_done = 0;
  uint64_t stages_done_step = 0;
  uint64_t skipped_steps = 0;
  uint64_t log_sequence = 0;

  bool operator==(const JobProgress&) const = default;
};

struct JobFields : JobIdentity, JobLife, JobProgress {
  // The version, which grows with every change that a watcher sees. Not stored: only
  // version_ceiling, which seldom changes, is stored.
  uint64_t version = 1;
};

// Returns the known number of optimizer steps of all fit stages. A stage that ends early has fewer
// steps than the job file says, and the next session reports the new number. If no session follows,
// the number is the step at which the job SUCCEEDED.
uint64_t TotalSteps(const JobFields& job);

// Returns whether the job's work survives the end of its processes.
inline bool WritesCheckpoints(const JobFields& job) {
  return !job.plan.checkpoint_directory.empty();
}

struct Job : JobFields {
  std::vector<Rank> ranks;
  // The checkpoints that count, and damaged checkpoints. Oldest first.
  std::vector<Checkpoint> checkpoints;
  // The complete checkpoints in the job's folder that do not count (kFound). By generation and
  // step.
  std::vector<Checkpoint> found_checkpoints;
  // Paths of checkpoints that no longer count and that rank 0 has not yet reported as removed.
  std::vector<std::string> dropped_checkpoints;
  // The failures of the newest failed generation, in the order in which they became known.
  std::vector<FailureNote> failures;
  // The ends of earlier attempts, oldest first.
  std::vector<AttemptEnd> ended_attempts;
  // Oldest first.
  std::vector<SettingChange> setting_changes;
  commands::CommandLog commands;
  Trainability trainability;
  // The newest events, oldest first. Each is stored when it is added.
  std::vector<JobEvent> events;

  // ---- Not stored.
  // The nodes with ranks of the job that are cut off and not replaced.
  std::set<std::string> cut_off;
  // The number up to which events are stored, or on their way to the store.
  uint64_t stored_events = 0;
  // The newest commands that processes may know: processes of `generation`, and of earlier
  // generations.
  uint64_t told_commands = 0;
  uint64_t told_before = 0;
  // The last Warning(job) that was logged.
  std::string warned;

  // The newest event's number; 0 if there is none.
  uint64_t newest_event() const { return events.empty() ? 0 : events.back().number; }
  membership::WorkerId Worker(uint32_t rank) const {
    return {id, generation, rank, ranks[rank].incarnation};
  }
};

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_JOB_H_
