// The interfaces of the training core to the outside: a source of commands and a sink of events.
// worker/control implements both with the stream to the coordinator. Tests implement both in
// memory.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_COORDINATOR_INTERFACE_H_
#define MUSTER_WORKER_TRAIN_REPORTS_COORDINATOR_INTERFACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/trainability/trainability.h"
#include "proto/muster/v1/metrics.pb.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"
#include "worker/train/job/input_plan.h"

namespace muster::train {

inline constexpr char kValidateStage[] = "validate";
inline constexpr char kTestStage[] = "test";

// A command is the message that the coordinator sends. commands::IsOver is true of a command that
// needs no action.
using v1::Command;

// The job's numbered command log, as far as this rank has received it. Thread-safe; never blocks.
class CommandSource {
 public:
  virtual ~CommandSource() = default;

  // Returns the number of the newest command that this rank holds; 0: none. The rank also holds all
  // earlier commands. The log at the begin of this session's process is there from the start.
  virtual int64_t Newest() const = 0;
  // Returns command `number`, 1 <= number <= Newest(). The path of a file for a client is a path on
  // this node.
  virtual Command Get(int64_t number) const = 0;

  // True if the job must save a checkpoint at its next step boundary, end, and continue on other
  // nodes. Never changes back to false.
  virtual bool Preempted() const { return false; }
};

struct SessionStarted {
  int64_t step = 0;             // optimizer steps done
  std::string checkpoint_path;  // empty: the session started without a checkpoint
  int64_t last_command = 0;     // the newest command that this checkpoint includes
  int64_t total_steps = 0;      // optimizer steps of all fit stages
};
struct StageStarted {
  std::string stage;
  int64_t step = 0;
};
// A stage that does not train has ended.
struct StageFinished {
  int64_t stages_done = 0;  // the number of stages that are over, from the begin of the job's list
  int64_t step = 0;         // optimizer steps done
};
// The ranks that have no input left, reported after each change. All other ranks have input.
struct RanksJoined {
  std::vector<JoinedRank> ranks;
};
struct CheckpointWritten {
  int64_t step = 0;
  std::string path;
  int64_t generation = 0;  // the generation that wrote the checkpoint
  uint64_t bytes = 0;      // all ranks' files; 0: the session started from this checkpoint
  // `stall_seconds`: the time that training waited. `seconds`: the time until all was durable.
  double stall_seconds = 0;
  double seconds = 0;
  bool best = false;  // the best checkpoint of the job so far (keep_best)
};
struct CheckpointFailed {
  int64_t step = 0;
  std::string reason;
};
struct CheckpointBad {
  std::string path;
  std::string reason;
};
// The complete checkpoints in the job's folder that the coordinator did not name, and the recorded
// checkpoints that could not be read.
struct CheckpointsFound {
  struct Checkpoint {
    std::string path;
    int64_t step = 0;
    int64_t generation = 0;
    std::string reason;  // why the checkpoint does not count; empty: it counts
  };
  std::vector<Checkpoint> found;
};
struct CommandApplied {
  int64_t number = 0;
  int64_t step = 0;  // optimizer steps done when the command took effect
};
struct LearningRateSet {
  double old_rate = 0;
  double new_rate = 0;
  double next_step = 0;  // the rate of the next step
};
// A change of the set of trained parameters.
struct TrainabilityChange {
  int64_t version = 0;  // the version that the change made
  int64_t step = 0;     // optimizer steps done
  int64_t command = 0;  // the command that asked for the change; 0: model code
  std::vector<std::string> frozen;
  std::vector<std::string> unfrozen;
  int64_t trained_before = 0;  // elements
  int64_t trained = 0;
  int64_t bytes_moved = 0;  // sent by all ranks together
  double seconds = 0;
};
// The effect of a change that is not made.
struct TrainabilityPlan {
  TrainabilityChange change;
  struct Rank {
    // The bytes of parameters, gradients and optimizer state that the rank holds between steps.
    int64_t state_bytes_before = 0;
    int64_t state_bytes = 0;
  };
  std::vector<Rank> ranks;
};
// The set of trained parameters. Reported at the start of a session and after each change.
struct TrainabilityReport {
  int64_t version = 0;
  std::vector<TrainableRule> rules;
  int64_t trained = 0;  // elements
  int64_t frozen = 0;
  std::vector<std::string> pending;                 // changed by model code, but not in force
  std::vector<Trainability::Parameter> parameters;  // at the start only, as the model was made
  std::optional<TrainabilityChange> change;
};
struct OptimizerStateGathered {
  std::string path;
  int64_t step = 0;    // optimizer steps done
  uint64_t bytes = 0;  // the size of the file
  // `stall_seconds`: the time that training waited. `seconds`: the time until the file was durable.
  double stall_seconds = 0;
  double seconds = 0;
};
struct ModelConsolidated {
  std::string path;
  int64_t step = 0;                // optimizer steps done
  uint64_t bytes = 0;              // the size of the files with weights
  std::vector<std::string> files;  // all files
  std::vector<std::string> notes;  // what the folder lacks, with the reason
  double stall_seconds = 0;        // the time that training waited
  double seconds = 0;
};
// An evaluation pass that a command asked for.
struct StageEvaluated {
  int64_t step = 0;  // optimizer steps done
  std::string stage;
  v1::Evaluation evaluation;
};
// The model's continuation of a prompt.
struct Sampled {
  int64_t step = 0;  // optimizer steps done
  std::vector<int64_t> prompt;
  std::vector<int64_t> tokens;  // the new tokens
  std::string text;             // of the new tokens, UTF-8; empty if the model has no tokenizer
};
// The end of a command.
struct CommandFinished {
  int64_t number = 0;
  absl::Status status;
  std::string reason;  // the reason of an error, for programs; may be empty
  // The result of a command that succeeded.
  std::variant<std::monostate, CheckpointWritten, LearningRateSet, OptimizerStateGathered,
               ModelConsolidated, TrainabilityChange, TrainabilityPlan, StageEvaluated, Sampled,
               v1::OperationResult>
      result;
};
// The weights have a temporary name. They get the final name after ExportGate allows it.
struct ExportReady {
  std::string temporary;
  std::string path;
};
struct Exported {
  std::string path;
};

// Something that users should know. `reason`: a stable code in UPPER_SNAKE_CASE.
struct Notice {
  std::string reason;
  std::string message;
  int64_t step = 0;  // optimizer steps done
};

// A v1::StepMetrics holds the measurements of a step or of a pass of evaluation, without the
// generation.
using Event = std::variant<SessionStarted, StageStarted, StageFinished, v1::StepMetrics,
                           RanksJoined, CheckpointWritten, CheckpointFailed, CheckpointBad,
                           CheckpointsFound, CommandApplied, CommandFinished, TrainabilityReport,
                           ExportReady, Exported, Notice>;

// Allows exported weights to get their final name. Thread-safe.
class ExportGate {
 public:
  virtual ~ExportGate() = default;

  // Called after ExportReady. Waits at most `timeout` for the permission. Returns true if the
  // permission is given, false if it is not given yet.
  virtual bool WaitForGrant(const std::string& path, absl::Duration timeout) = 0;
  // Returns the longest time to wait for the permission, over all calls.
  virtual absl::Duration grant_timeout() const = 0;
};

// Says whether this process may still act for its rank. After the lease has ended, another process
// may have taken its place. Thread-safe, and fast enough for every step.
class LeaseHolder {
 public:
  virtual ~LeaseHolder() = default;

  // UNAVAILABLE: the lease is over. This process must not change anything that other processes see.
  virtual absl::Status StillMine() const = 0;
};

// Receives the events of a session and queues them in order. Thread-safe. Only Settle may block on
// the network.
class EventSink {
 public:
  virtual ~EventSink() = default;

  virtual void Report(const Event& event) = 0;
  // Reports the current work of this rank. Only the newest call counts. Fast enough for every step.
  virtual void Progress(int64_t step, const char* stage, const char* doing) = 0;
  // Waits at most `timeout` until no reported event can be lost by an end of this process. An
  // implementation that cannot lose events does nothing.
  virtual void Settle(absl::Duration /*timeout*/) {}
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_COORDINATOR_INTERFACE_H_
