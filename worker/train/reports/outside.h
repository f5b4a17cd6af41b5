// What the training core needs from outside: a source of commands and a sink of events.
// worker/control implements both over the stream to the coordinator; tests implement them in
// memory.
#ifndef MUSTER_WORKER_TRAIN_REPORTS_OUTSIDE_H_
#define MUSTER_WORKER_TRAIN_REPORTS_OUTSIDE_H_

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

// Commands are held as the messages that the coordinator sends. commands::IsOver says of which
// there is nothing to do.
using v1::Command;

// The job's numbered command log, as far as it has reached this rank. Thread-safe; never blocks.
class CommandSource {
 public:
  virtual ~CommandSource() = default;

  // The number of the newest command that this rank holds; 0: none. The rank also holds all earlier
  // commands. Commands that were in the log when this session's process began are there from the
  // start.
  virtual int64_t Newest() const = 0;
  // Command `number`, 1 <= number <= Newest(). What it writes for a client has a path of this node.
  virtual Command Get(int64_t number) const = 0;

  // True if the job must save a checkpoint at its next step boundary, end there, and continue on
  // other nodes. Once true, it stays true.
  virtual bool Preempted() const { return false; }
};

struct SessionStarted {
  int64_t step = 0;             // optimizer steps done
  std::string checkpoint_path;  // empty: started without one
  int64_t last_command = 0;     // the newest command that this checkpoint includes
  int64_t total_steps = 0;      // optimizer steps of all fit stages
};
struct StageStarted {
  std::string stage;
  int64_t step = 0;
};
// A stage that does not train is over.
struct StageFinished {
  int64_t stages_done = 0;  // how many of the job's stages are over: the first ones of its list
  int64_t step = 0;         // optimizer steps done
};
// The ranks that have no input left, reported each time they change. All other ranks have input.
struct RanksJoined {
  std::vector<JoinedRank> ranks;
};
struct CheckpointWritten {
  int64_t step = 0;
  std::string path;
  int64_t generation = 0;  // the generation that wrote it
  uint64_t bytes = 0;      // of all ranks' files; 0: the session started from it
  // How long training waited, and how long it took until the files were durable.
  double stall_seconds = 0;
  double seconds = 0;
  bool best = false;  // the best one of the job until now (keep_best)
};
struct CheckpointFailed {
  int64_t step = 0;
  std::string reason;
};
struct CheckpointBad {
  std::string path;
  std::string reason;
};
// Whole checkpoints in the job's folder that the coordinator did not name, and recorded ones that
// could not be read.
struct CheckpointsFound {
  struct One {
    std::string path;
    int64_t step = 0;
    int64_t generation = 0;
    std::string reason;  // why it does not count; empty: it counts from now on
  };
  std::vector<One> found;
};
struct CommandApplied {
  int64_t number = 0;
  int64_t step = 0;  // optimizer steps done when it took effect
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
  int64_t command = 0;  // the command that asked for it; 0: model code
  std::vector<std::string> frozen;
  std::vector<std::string> unfrozen;
  int64_t trained_before = 0;  // elements
  int64_t trained = 0;
  int64_t bytes_moved = 0;  // sent by all ranks together
  double seconds = 0;
};
// What a change would do.
struct TrainabilityPlan {
  TrainabilityChange change;
  struct Rank {
    // Parameters, gradients and optimizer state that the rank holds between steps.
    int64_t state_bytes_before = 0;
    int64_t state_bytes = 0;
  };
  std::vector<Rank> ranks;
};
// Which parameters are trained now. Reported at the start of a session and after each change.
struct TrainabilityReport {
  int64_t version = 0;
  std::vector<TrainableRule> rules;
  int64_t trained = 0;  // elements
  int64_t frozen = 0;
  std::vector<std::string> pending;  // parameters that model code has changed, not in force
  std::vector<Trainability::Parameter> parameters;  // at the start only, as the model was made
  std::optional<TrainabilityChange> change;
};
struct OptimizerStateGathered {
  std::string path;
  int64_t step = 0;    // optimizer steps done
  uint64_t bytes = 0;  // of the file
  // How long training waited, and how long it took until the file was durable.
  double stall_seconds = 0;
  double seconds = 0;
};
struct ModelConsolidated {
  std::string path;
  int64_t step = 0;                // optimizer steps done
  uint64_t bytes = 0;              // of the files with weights
  std::vector<std::string> files;  // all of them
  std::vector<std::string> notes;  // what the folder lacks, and why
  double stall_seconds = 0;        // as above
  double seconds = 0;
};
// A pass of evaluation that was asked for.
struct StageEvaluated {
  int64_t step = 0;  // optimizer steps done
  std::string stage;
  v1::Evaluation evaluation;
};
// How the model continued a prompt.
struct Sampled {
  int64_t step = 0;  // optimizer steps done
  std::vector<int64_t> prompt;
  std::vector<int64_t> tokens;  // the new ones
  std::string text;             // of these, UTF-8; empty if the model has no tokenizer
};
// How a command ended.
struct CommandFinished {
  int64_t number = 0;
  absl::Status status;
  std::string reason;  // of an error, for programs; may be empty
  // The result of a command that succeeded.
  std::variant<std::monostate, CheckpointWritten, LearningRateSet, OptimizerStateGathered,
               ModelConsolidated, TrainabilityChange, TrainabilityPlan, StageEvaluated, Sampled,
               v1::OperationResult>
      result;
};
// The weights are written under a temporary name, which they keep until ExportGate allows the final
// one.
struct ExportReady {
  std::string temporary;
  std::string path;
};
struct Exported {
  std::string path;
};

// Something that people should know. `reason`: a stable code in UPPER_SNAKE_CASE.
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

  // Called after ExportReady. Waits at most `timeout` for the permission. True: it is given; false:
  // not yet.
  virtual bool WaitForGrant(const std::string& path, absl::Duration timeout) = 0;
  // How long to wait for the permission in all.
  virtual absl::Duration grant_timeout() const = 0;
};

// Says whether this process may still act for its rank. After its lease, another process may have
// replaced it. Thread-safe, and cheap enough for every step.
class LeaseHolder {
 public:
  virtual ~LeaseHolder() = default;

  // UNAVAILABLE: the lease is over. This process must not change anything any more that others see.
  virtual absl::Status StillMine() const = 0;
};

// Receives the events of a session and queues them in order. Thread-safe. Only Settle may block on
// the network.
class EventSink {
 public:
  virtual ~EventSink() = default;

  virtual void Report(const Event& event) = 0;
  // Where this rank is now; only the newest call counts. Cheap enough for every step.
  virtual void Progress(int64_t step, const char* stage, const char* doing) = 0;
  // Waits at most `timeout` until all reported events would reach the coordinator even if this
  // process ended now. An implementation that cannot lose events does nothing.
  virtual void Settle(absl::Duration /*timeout*/) {}
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_REPORTS_OUTSIDE_H_
