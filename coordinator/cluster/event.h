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
#include "absl/time/time.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/membership/watchdog.h"
#include "coordinator/membership/worker_id.h"

namespace muster::cluster {

using membership::WorkerId;

struct Submission {
  // Empty: one is made from the name.
  std::string job_id;
  std::string name;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  std::string spec;
  jobs::Plan plan;
  // What there is against it, unless it is a repeat.
  absl::Status refusal;
};

// What a client asks of a job that runs.
struct CommandRequest {
  std::string job_id;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  // Without its number.
  commands::Command command;
  // Of kResume: where a halted job starts; neither: from its newest checkpoint.
  bool from_scratch = false;
  std::string from;
};

// What somebody asks for a node.
struct NodeRequest {
  std::string node;
  std::string request_id;
  // Of the request's contents.
  std::string fingerprint;
  // Who asks, for people; may be empty.
  std::string requested_by;
  // Of a drain: how long what runs there may take. Absent: what was asked before, else as its agent
  // has it.
  std::optional<absl::Duration> deadline;
};

struct WorkerExit {
  WorkerId worker;
  int64_t pid = 0;
  jobs::Exit exit;
};

struct RunningWorker {
  WorkerId worker;
  int64_t pid = 0;
};

// What this program understands of agents; they may be one version apart. Since 2 heartbeats are
// acknowledged.
inline constexpr uint32_t kAgentProtocol = 2;

struct AgentHello {
  std::string node;
  std::string incarnation;
  std::string host;
  uint32_t slots = 0;
  // Of the agent's program.
  std::string version;
  uint32_t protocol = kAgentProtocol;
  // Stays the same when the agent is started again; empty: an agent of protocol 1.
  std::string agent_id;
  std::vector<RunningWorker> running;
  std::vector<WorkerExit> exits;
  // Why it is being stopped; empty: it is not.
  std::string draining;
  std::vector<uint32_t> quarantined_slots;
};

// A process does not end although it was killed, or has ended at last.
struct SlotQuarantine {
  uint32_t slot = 0;
  WorkerId worker;
  int64_t pid = 0;
  bool quarantined = false;
  std::string reason;
};

// What this program understands of workers; they may be one version apart. Since 2 they carry out
// what is in the log, since 3 heartbeats are acknowledged, and they know the preemption notice.
inline constexpr uint32_t kWorkerProtocol = 3;
inline constexpr uint32_t kOldestWorkerProtocol = 2;
// From here on they heed WorkerWelcome.from_scratch and start_from.
inline constexpr uint32_t kWorkerProtocolOfStarts = 3;
inline constexpr uint32_t kPreemptibleWorkerProtocol = 3;

struct WorkerHello {
  WorkerId worker;
  int64_t pid = 0;
  uint64_t newest_command = 0;
  // Of this process, by whichever coordinator.
  uint64_t acked_report = 0;
  uint32_t protocol = kWorkerProtocol;
};

struct Heartbeat {
  uint64_t step = 0;
  std::string progress;
  std::string stage;
  uint64_t activity = 0;
  membership::Collectives collectives;
  // v1::RankMemory, serialized; the cores never look inside.
  std::string memory;
};

// ---- Reports of a worker.
struct SessionStarted {
  uint64_t step = 0;
  std::string checkpoint_path;
  // Of that checkpoint.
  uint64_t last_command = 0;
};
// What the cores decide on of a step, and all that was measured of it.
struct StepDone {
  uint64_t step = 0;
  // Nothing was updated.
  bool skipped = false;
  // v1::StepMetrics, serialized; the cores never look inside.
  std::string metrics;
};
// By rank: since which step. The others have input.
struct RanksJoined {
  std::map<uint32_t, uint64_t> since;
};
struct StageStarted {
  std::string stage;
  uint64_t step = 0;
};
struct Validated {
  // It ran after so many steps.
  uint64_t step = 0;
  // As in StepDone.
  std::string metrics;
};
struct CheckpointWritten {
  uint64_t step = 0;
  std::string path;
};
struct CheckpointFailed {
  uint64_t step = 0;
  std::string reason;
};
// The weights are written, and wait for leave to be put there.
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
    // Why it was not.
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
struct TrainabilityInForce {
  uint64_t version = 0;
  // As in jobs::Trainability; empty `parameters`: as before.
  std::string in_force;
  std::string parameters;
  // Without its generation and time; absent: nothing changed.
  std::optional<jobs::TrainabilityChange> change;
};
struct Exported {
  std::string path;
};
struct Finished {
  uint64_t step = 0;
  std::string ended_early;
  // It ended because it was told that the job goes on elsewhere.
  bool preempted = false;
};
struct Report {
  uint64_t sequence = 0;
  std::variant<std::monostate, jobs::Rendezvous, SessionStarted, StepDone, StageStarted, Validated,
               CheckpointWritten, CheckpointFailed, CheckpointBad, CheckpointsFound,
               CheckpointsRemoved, CommandApplied, CommandFinished, TrainabilityInForce,
               RanksJoined, ExportReady, Exported, Finished, jobs::ReportedFailure>
      what;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_EVENT_H_
