// What the training core needs from outside: a source of commands and a sink of events.
// worker/control implements both over the stream to the coordinator; tests implement them in
// memory.
#ifndef MUSTER_WORKER_TRAIN_OUTSIDE_H_
#define MUSTER_WORKER_TRAIN_OUTSIDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/trainability/trainability.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/train/input_plan.h"

namespace muster::train {

// It is done, or was taken back: nothing is to be done.
struct NoCommand {};
struct StopCommand {};
struct SaveCheckpointCommand {};
struct SetLearningRateCommand {
  double rate = 0;
};
struct SetTrainabilityCommand {
  std::vector<TrainableRule> rules;
  bool dry_run = false;
};
// Brings into force what model code has changed.
struct RefreshCommand {};
struct PauseCommand {};
struct ResumeCommand {};
// Takes back the command of this number, where it has not taken effect.
struct CancelCommand {
  int64_t target = 0;
};

struct Command {
  int64_t number = 0;
  // Not before so many optimizer steps are done.
  std::optional<int64_t> at_step;
  // It took effect in an earlier generation after at_step steps: again there, and no later change
  // before it.
  bool replay = false;
  // It took effect in an earlier generation, and is to be done anew (a halt that is in force, a
  // checkpoint that was not finished): it cannot be taken back.
  bool begun = false;
  std::variant<NoCommand, StopCommand, SaveCheckpointCommand, SetLearningRateCommand,
               SetTrainabilityCommand, RefreshCommand, PauseCommand, ResumeCommand, CancelCommand>
      what;
};

// The job's numbered command log, as far as it has reached this rank. Thread-safe; never blocks.
class CommandSource {
 public:
  virtual ~CommandSource() = default;

  // Number of the newest command this rank holds; it holds all before it too. 0: none. What the log
  // held when this session's process began is there from the start.
  virtual int64_t Newest() const = 0;
  // Command `number`, 1 <= number <= Newest().
  virtual Command Get(int64_t number) const = 0;

  // The job is to save a checkpoint at its next step boundary, to end there and to go on elsewhere.
  // Once true it stays so.
  virtual bool Preempted() const { return false; }
};

struct SessionStarted {
  int64_t step = 0;             // optimizer steps done
  std::string checkpoint_path;  // empty: started without one
  int64_t last_command = 0;     // the newest one that this checkpoint has taken in
};
struct StageStarted {
  std::string stage;
  int64_t step = 0;
};
// Who has joined, each time that changes; all others have input.
struct RanksJoined {
  std::vector<JoinedRank> ranks;
};
struct CheckpointWritten {
  int64_t step = 0;
  std::string path;
  int64_t generation = 0;  // that wrote it
};
struct CheckpointFailed {
  int64_t step = 0;
  std::string reason;
  bool final = false;  // it was the last one of the job's training
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
    int64_t last_command = 0;
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
// From one mask of trained parameters to another.
struct TrainabilityChange {
  int64_t version = 0;  // that it made
  int64_t step = 0;     // optimizer steps done
  int64_t command = 0;  // that asked for it; 0: model code
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
    int64_t state_bytes_before =
        0;  // parameters, gradients and optimizer state that it holds between steps
    int64_t state_bytes = 0;
  };
  std::vector<Rank> ranks;
};
// What is trained now: at the start of a session, and after each change.
struct TrainabilityInForce {
  int64_t version = 0;
  std::vector<TrainableRule> rules;
  int64_t trained = 0;  // elements
  int64_t frozen = 0;
  std::vector<std::string> pending;  // parameters that model code has changed, without effect
  std::vector<Trainability::Parameter> parameters;  // at the start only, as the model was made
  std::optional<TrainabilityChange> change;
};
// How a command ended.
struct CommandFinished {
  int64_t number = 0;
  absl::Status status;
  std::string reason;  // of an error, for programs; may be empty
  // Of one that did what it says.
  std::variant<std::monostate, CheckpointWritten, LearningRateSet, TrainabilityChange,
               TrainabilityPlan>
      result;
};
// The weights are written and wait under a temporary name, until ExportGate lets them take their
// place.
struct ExportReady {
  std::string temporary;
  std::string path;
};
struct Exported {
  std::string path;
};

// A StepMetrics is what was measured of a step or of a validation pass, without its generation.
using Event =
    std::variant<SessionStarted, StageStarted, v1::StepMetrics, RanksJoined, CheckpointWritten,
                 CheckpointFailed, CheckpointBad, CheckpointsFound, CommandApplied, CommandFinished,
                 TrainabilityInForce, ExportReady, Exported>;

// Who says that exported weights may take their place. Thread-safe.
class ExportGate {
 public:
  virtual ~ExportGate() = default;

  // After ExportReady: waits at most `timeout` for the word. True: it is given, false: not yet.
  virtual bool WaitForGrant(const std::string& path, absl::Duration timeout) = 0;
  // For how long to ask, all in all.
  virtual absl::Duration patience() const = 0;
};

// Whether this process may still act for its rank, or another one may be in its place. Thread-safe,
// and cheap enough for every step.
class LeaseHolder {
 public:
  virtual ~LeaseHolder() = default;

  // UNAVAILABLE: the lease is over. Nothing is to be changed any more that others see.
  virtual absl::Status StillMine() const = 0;
};

// Takes what happens. Thread-safe; never blocks on the network, but in Settle: events are queued in
// order.
class EventSink {
 public:
  virtual ~EventSink() = default;

  virtual void Report(const Event& event) = 0;
  // Where this rank is now; only the newest counts. Cheap enough for every step.
  virtual void Progress(int64_t step, const char* stage, const char* doing) = 0;
  // Waits until everything that was reported would be told also if this process ended now, at most
  // `timeout`. What cannot fail has nothing to wait for.
  virtual void Settle(absl::Duration /*timeout*/) {}
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_OUTSIDE_H_
