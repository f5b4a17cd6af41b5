// The events of the cluster, as plain values. The service makes them from messages of the wire.
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
  // The job's id. If empty, the coordinator makes an id from the name.
  std::string job_id;
  std::string name;
  std::string request_id;
  // A hash of the request's contents.
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
  // A hash of the request's contents.
  std::string fingerprint;
  // The command to add. The cluster sets its number.
  commands::Command command;
  // The start of a halted job, for a RESUME: step 0, or the directory `from`. If neither is set,
  // the job starts from its newest checkpoint.
  bool from_scratch = false;
  std::string from;
  // The error of a retry that is no repeat, and the settings that a retry changes.
  absl::Status refusal;
  jobs::NewSettings settings;
};

// Removes a job that has ended.
struct DeleteRequest {
  std::string job_id;
  std::string request_id;
  // A hash of the request's contents.
  std::string fingerprint;
  // The answer of the request. It is kept for repeated calls.
  std::string answer;
  // The requester's name, for the daemon's log.
  std::string requested_by = "";
};

// ---- Orders of operators about nodes.
struct NodeRequest {
  std::string node;
  std::string request_id;
  // A hash of the request's contents.
  std::string fingerprint;
  // The person or program that asks, for messages; may be empty.
  std::string requested_by;
  std::string By() const { return requested_by.empty() ? "" : absl::StrCat(" by ", requested_by); }
  // The time that the processes on the node may take to end, for a drain. If absent, the deadline
  // of an earlier request holds, otherwise the agent's own setting.
  std::optional<absl::Duration> deadline;
};

// Closes the node for new processes. Its jobs save a checkpoint at their next step boundary, end,
// and continue on other nodes without using a restart. A new deadline replaces the former deadline.
struct DrainNode {
  NodeRequest request;
};
// Closes the node for new processes.
struct CordonNode {
  NodeRequest request;
};
// Ends a drain, a cordon, and the time for which the node is left out after failures.
struct UncordonNode {
  NodeRequest request;
};
// Declares that all processes on this node, which is not attached, have ended. Their ranks are
// replaced at once. Everything known of the node is deleted, also its drain or cordon.
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

// The largest accepted distance of a reported generation from the job's newest generation. Without
// a limit, a false report could use up all generation numbers.
inline constexpr uint64_t kMostLostGenerations = 1'000'000;

struct AgentHello {
  std::string node;
  std::string incarnation;
  std::string host;
  uint32_t slots = 0;
  // The version of the agent's program.
  std::string version;
  uint32_t protocol = kAgentProtocol;
  // The agent's id. It stays the same when the agent is started again.
  std::string agent_id;
  std::vector<RunningWorker> running;
  std::vector<WorkerExit> exits;
  // The reason why the agent is being stopped; empty if it is not being stopped.
  std::string draining;
  std::vector<uint32_t> quarantined_slots;
  std::vector<membership::Gpu> gpus;
};

// A change of a slot: a killed process does not end (`quarantined`), or it has finally ended.
struct SlotQuarantine {
  uint32_t slot = 0;
  WorkerId worker;
  int64_t pid = 0;
  bool quarantined = false;
  std::string reason;
};

// Lines of a worker's log.
struct LogLines {
  WorkerId worker;
  std::vector<std::string> lines;
};
// Announces that the agent is being stopped. Its node is drained until another process of the agent
// attaches.
struct AgentStops {
  std::string reason;
};
// The reason that jobs on the node are given.
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
  // The reason why the rank cannot start, for people.
  std::string trouble;
  std::string stage;
  uint64_t activity = 0;
  membership::Collectives collectives;
  // v1::RankMemory, serialized. The cluster does not parse it.
  std::string memory;
  std::optional<membership::FileWriting> writing;
};

// ---- Reports of a worker.
struct SessionStarted {
  uint64_t step = 0;
  std::string checkpoint_path;
  // The newest command whose effect is in this checkpoint.
  uint64_t last_command = 0;
  // The optimizer steps of all fit stages; 0 if there are none or the worker does not tell.
  uint64_t total_steps = 0;
};
// A finished step: the values that the cluster uses for decisions, and all its measurements.
struct StepDone {
  uint64_t step = 0;
  // Whether the step changed no weights.
  bool skipped = false;
  // v1::StepMetrics, serialized. The cluster does not parse it.
  std::string metrics;
};
// The ranks without input, each with its first step without input. All other ranks have input.
struct RanksJoined {
  std::map<uint32_t, uint64_t> since;
};
struct StageStarted {
  std::string stage;
  uint64_t step = 0;
};
// The number of stages, from the first, that are over.
struct StageFinished {
  uint64_t stages_done = 0;
  uint64_t step = 0;
};
// A validation or test pass: a stage of its own, or a pass during training.
struct Validated {
  enum class Data { kValidation, kTest };
  // The number of steps before the pass.
  uint64_t step = 0;
  // The pass's metrics, serialized like StepDone::metrics.
  std::string metrics;
  // The metrics without counts by class, which may be large. This copy is stored again with each
  // step.
  std::string summary;
  Data data = Data::kValidation;
};
struct CheckpointWritten {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  absl::Duration stall;
  absl::Duration write_time;
  // Whether this checkpoint is the best of the job. A worker also reports the best checkpoint that
  // it found at its start. An earlier generation may have written that checkpoint.
  bool best = false;
};
struct CheckpointFailed {
  uint64_t step = 0;
  std::string reason;
};
// Asks for permission to rename the exported weights from a temporary name to `path`.
struct ExportReady {
  std::string path;
};
struct CheckpointBad {
  std::string path;
  std::string reason;
};
struct CheckpointsFound {
  struct Checkpoint {
    uint64_t step = 0;
    uint64_t generation = 0;
    std::string path;
    bool adopted = false;
    // The reason why the checkpoint was not adopted.
    std::string reason;
  };
  std::vector<Checkpoint> found;
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
  // The same as in jobs::Trainability. `parameters` is empty if they have not changed.
  std::string in_force;
  std::string parameters;
  // The change, without generation and time; absent if nothing changed.
  std::optional<jobs::TrainabilityChange> change;
};
struct Exported {
  std::string path;
};
// A message that becomes an event of the job.
struct Notice {
  std::string reason;
  std::string message;
  uint64_t step = 0;
};
struct Finished {
  uint64_t step = 0;
  std::string ended_early;
  // Whether the rank ended because of a preemption notice. Then the job continues on other nodes.
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

// Reports that a worker left on its node's disk, in order. They are applied like reports that the
// worker sends itself. Only their measurements are stored after a gap, or if the worker is not its
// rank's current process. All of them are acknowledged, even if unused.
struct SpooledReports {
  WorkerId worker;
  std::vector<Report> reports;
};
// An agent's messages after AgentHello. RunningWorker means that the process has started.
using AgentWord =
    std::variant<RunningWorker, WorkerExit, SpooledReports, LogLines, AgentStops, SlotQuarantine>;

// ---- What musterd itself says.
// A tick. It comes several times per lease.
struct TimePassed {};
// Whether agents and workers count as lost when they are silent; true at first. The caller sets it
// to false while the coordinator does not listen, because agents and workers take a refused
// connection for an answer. A change to true gives all agents and workers a new lease.
struct JudgeLiveness {
  bool judging = true;
};
// Reports that the coordinator's process stood still for this time and received nothing. All agents
// and workers get a new lease.
struct CoordinatorPaused {
  absl::Duration gap;
};
// Reports that the store could not be written for this time, so that no peer could attach. All
// agents and workers without a stream get a new lease.
struct StoreUnavailable {
  absl::Duration gap;
};
// Drains the node because musterd is about to stop its own agent there. In contrast to AgentStops,
// another process of the agent does not end this drain.
struct LeaveNode {
  std::string node;
};
// Ends all processes that still run on the node.
struct InterruptNode {
  std::string node;
};
using DaemonEvent = std::variant<TimePassed, JudgeLiveness, CoordinatorPaused, StoreUnavailable,
                                 LeaveNode, InterruptNode>;

// The reason that jobs on the node of musterd's own agent are given.
inline constexpr char kMusterdStops[] = "musterd is being stopped";

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_EVENT_H_
