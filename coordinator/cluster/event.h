// What happens to the cluster, in plain values: the service makes these from the wire.
#ifndef MUSTER_COORDINATOR_CLUSTER_EVENT_H_
#define MUSTER_COORDINATOR_CLUSTER_EVENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/version/protocol.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/settings.h"
#include "coordinator/membership/agents.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/watchdog.h"
#include "coordinator/membership/worker_id.h"

namespace muster::cluster {

using membership::WorkerId;

struct Submission {
  // Empty: the coordinator makes one from the name.
  std::string job_id;
  std::string name;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  std::string submitter;
  std::string job_file;
  std::string spec;
  jobs::Plan plan;
  // An error with which the submission is refused, unless it repeats an earlier request.
  absl::Status refusal;
  // The reasons and texts of the first events of the job.
  std::vector<std::pair<std::string, std::string>> events = {};
};

// A client's command for a job.
struct CommandRequest {
  std::string job_id;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  // Its number is not set yet.
  commands::Command command;
  // For a RESUME: where a halted job starts: at step 0, or from this directory. If neither is set,
  // it starts from its newest checkpoint.
  bool from_scratch = false;
  std::string from;
  // For a retry: why it is refused unless it is a repeat, and the settings that it changes.
  absl::Status refusal;
  jobs::NewSettings settings;
};

// Removes a job that has ended.
struct DeleteRequest {
  std::string job_id;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  // Kept for repeated calls.
  std::string answer;
  // For the daemon's log.
  std::string requested_by = "";
};

// ---- Orders of operators about nodes.
struct NodeRequest {
  std::string node;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  // The person or program that asks, for messages; may be empty.
  std::string requested_by;
  std::string By() const { return requested_by.empty() ? "" : absl::StrCat(" by ", requested_by); }
  // For a drain: how long the processes on the node may take to end. Absent: the deadline of an
  // earlier request, otherwise the agent's own setting.
  std::optional<absl::Duration> deadline;
};

// Nothing is placed there any more. The jobs that run there save a checkpoint at their next step,
// end, and continue on other nodes without using a restart. Another deadline replaces the former.
struct DrainNode {
  NodeRequest request;
};
// Nothing is placed there any more.
struct CordonNode {
  NodeRequest request;
};
// Ends a drain, a cordon, and the time in which the node is left out after failures.
struct UncordonNode {
  NodeRequest request;
};
// Everything that ran on this node, which is not attached, has ended: its ranks are replaced at
// once, and nothing is remembered of the node, also no drain or cordon.
struct ForgetNode {
  NodeRequest request;
};
using NodeOrder = std::variant<DrainNode, CordonNode, UncordonNode, ForgetNode>;

// ---- What agents say.
struct WorkerExit {
  WorkerId worker;
  int64_t pid = 0;
  jobs::Exit exit;
};

struct RunningWorker {
  WorkerId worker;
  int64_t pid = 0;
};

// No database is so old that it lacks more generations of a job. Without a limit one false number
// would leave no higher one for the next generation.
inline constexpr uint64_t kMostLostGenerations = 1'000'000;

struct AgentHello {
  std::string node;
  std::string incarnation;
  std::string host;
  uint32_t slots = 0;
  // The version of the agent's program.
  std::string version;
  uint32_t protocol = kAgentProtocol;
  // Stays the same when the agent is started again.
  std::string agent_id;
  std::vector<RunningWorker> running;
  std::vector<WorkerExit> exits;
  // Why the agent is being stopped; empty: it is not being stopped.
  std::string draining;
  std::vector<uint32_t> quarantined_slots;
  std::vector<membership::Gpu> gpus;
};

// A process does not end although it was killed (`quarantined`), or has finally ended.
struct SlotQuarantine {
  uint32_t slot = 0;
  WorkerId worker;
  int64_t pid = 0;
  bool quarantined = false;
  std::string reason;
};

// Lines of the log of a worker.
struct LogLines {
  WorkerId worker;
  std::vector<std::string> lines;
};
// The agent is being stopped: the node is drained until another process of the agent attaches.
struct AgentStops {
  std::string reason;
};
// Why the jobs leave the node.
inline std::string WhyAgentStops(const std::string& node) {
  return absl::StrCat("the agent of node '", node, "' is being stopped");
}

// ---- What workers say.
struct WorkerHello {
  WorkerId worker;
  int64_t pid = 0;
  uint64_t newest_command = 0;
  // The newest report of this process that any coordinator has acknowledged.
  uint64_t acked_report = 0;
  uint32_t protocol = kWorkerProtocol;
};

struct Heartbeat {
  uint64_t step = 0;
  std::string progress;
  // What keeps it from starting, for people.
  std::string trouble;
  std::string stage;
  uint64_t activity = 0;
  membership::Collectives collectives;
  // v1::RankMemory, serialized; the cores never look inside.
  std::string memory;
  std::optional<membership::FileWriting> writing;
};

// ---- Reports of a worker.
struct SessionStarted {
  uint64_t step = 0;
  std::string checkpoint_path;
  // The newest command that this checkpoint has taken in.
  uint64_t last_command = 0;
  // Optimizer steps of all fit stages. 0: there are none, or the worker does not tell.
  uint64_t total_steps = 0;
};
// The values of a step that the cores use in decisions, and all its measurements.
struct StepDone {
  uint64_t step = 0;
  // The step updated nothing.
  bool skipped = false;
  // v1::StepMetrics, serialized; the cores never look inside.
  std::string metrics;
};
// The ranks that have joined, each with the first step without input. All other ranks have input.
struct RanksJoined {
  std::map<uint32_t, uint64_t> since;
};
struct StageStarted {
  std::string stage;
  uint64_t step = 0;
};
// The first so many stages of the job are over.
struct StageFinished {
  uint64_t stages_done = 0;
  uint64_t step = 0;
};
// A pass over the data of a stage, or during one that trains.
struct Validated {
  enum class Data { kValidation, kTest };
  // The number of steps before the pass.
  uint64_t step = 0;
  // As in StepDone.
  std::string metrics;
  // The same without counts by class, which may be large: a job's newest pass is stored with each
  // of its steps.
  std::string summary;
  Data data = Data::kValidation;
};
struct CheckpointWritten {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  absl::Duration stall;
  absl::Duration write_time;
  // It is the best one of the job. A session also reports the best one that it starts with, which
  // an earlier generation may have written.
  bool best = false;
};
struct CheckpointFailed {
  uint64_t step = 0;
  std::string reason;
};
// The weights are written under a temporary name and wait for the permission to be renamed to
// `path`.
struct ExportReady {
  std::string path;
};
struct CheckpointBad {
  std::string path;
  std::string reason;
};
struct CheckpointsFound {
  struct One {
    uint64_t step = 0;
    uint64_t generation = 0;
    std::string path;
    bool adopted = false;
    // Why it was not adopted.
    std::string reason;
  };
  std::vector<One> found;
};
struct CheckpointsRemoved {
  std::vector<std::string> names;
};
struct CommandApplied {
  uint64_t number = 0;
  uint64_t step = 0;
};
struct CommandFinished {
  uint64_t number = 0;
  commands::Outcome outcome;  // without its time
};
struct TrainabilityReport {
  uint64_t version = 0;
  // As in jobs::Trainability; `parameters` is empty if they have not changed.
  std::string in_force;
  std::string parameters;
  // Without its generation and time; absent: nothing changed.
  std::optional<jobs::TrainabilityChange> change;
};
struct Exported {
  std::string path;
};
// Becomes an event of the job.
struct Notice {
  std::string reason;
  std::string message;
  uint64_t step = 0;
};
struct Finished {
  uint64_t step = 0;
  std::string ended_early;
  // It ended because of a preemption notice: the job continues on other nodes.
  bool preempted = false;
};
struct Report {
  uint64_t sequence = 0;
  std::variant<std::monostate, jobs::Rendezvous, SessionStarted, StepDone, StageStarted,
               StageFinished, Validated, CheckpointWritten, CheckpointFailed, CheckpointBad,
               CheckpointsFound, CheckpointsRemoved, CommandApplied, CommandFinished,
               TrainabilityReport, RanksJoined, ExportReady, Exported, Notice, Finished,
               jobs::ReportedFailure>
      what;
};

// Reports that a worker left on the disk of its node, in order. They are applied like reports that
// the worker sends itself. After a gap, and if the worker is not the current process of its rank,
// only their measurements are stored. They are acknowledged even if nobody needs them any more.
struct SpooledReports {
  WorkerId worker;
  std::vector<Report> reports;
};
// RunningWorker: the process has started.
using AgentWord =
    std::variant<RunningWorker, WorkerExit, SpooledReports, LogLines, AgentStops, SlotQuarantine>;

// ---- What musterd itself says.
// Comes several times per lease.
struct TimePassed {};
// Whether silent agents and workers are given up. It is on at first. It must be off while the
// coordinator does not listen, because a refused connection counts as an answer for agents and
// workers. When it is turned on, everybody gets a new lease.
struct Judge {
  bool judging = true;
};
// The coordinator's process stood still for this time and received nothing: everybody gets a new
// lease.
struct WasAway {
  absl::Duration gap;
};
// The store could not be written for this time, and no peer could attach: everybody without a
// stream gets a new lease.
struct StoreWasAway {
  absl::Duration gap;
};
// The agent of musterd's own node is about to be stopped. Like AgentStops, but another process of
// the agent does not end the drain.
struct LeaveNode {
  std::string node;
};
// All processes that still run there end now.
struct InterruptNode {
  std::string node;
};
using DaemonEvent =
    std::variant<TimePassed, Judge, WasAway, StoreWasAway, LeaveNode, InterruptNode>;

// Why the jobs leave the node of musterd's own agent.
inline constexpr char kMusterdStops[] = "musterd is being stopped";

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_EVENT_H_
