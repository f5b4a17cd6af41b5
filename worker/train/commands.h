// Carries out the commands of the job's log: each at its step boundary (command_schedule.h), on all
// ranks alike, and tells how it ended.
#ifndef MUSTER_WORKER_TRAIN_COMMANDS_H_
#define MUSTER_WORKER_TRAIN_COMMANDS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/optim/schedule.h"
#include "worker/train/command_schedule.h"
#include "worker/train/outside.h"
#include "worker/train/roll_call_plan.h"
#include "worker/train/saving.h"
#include "worker/train/session_reports.h"
#include "worker/train/standing.h"

namespace muster::train {

// What commands do to a session. Errors are the session's.
class CommandEffects {
 public:
  virtual ~CommandEffects() = default;

  virtual bool trains() const = 0;
  virtual bool has_checkpoints() const = 0;
  // A roll call for the step that comes now: says that training may go on from here, because the
  // losses are finite on every rank.
  virtual absl::StatusOr<RollCallPlan> CallNow() = 0;
  // Only where the job has checkpoints and trains.
  virtual absl::StatusOr<SaveResult> Save(SaveKind kind) = 0;
  // The newest one, after Save.
  virtual CheckpointWritten NewestCheckpoint() const = 0;
  // Only where the job trains. INVALID_ARGUMENT: rules that no change can be made of.
  virtual absl::Status CheckRules(const std::vector<TrainableRule>& rules) const = 0;
  virtual absl::StatusOr<TrainabilityPlan> Foresee(const std::vector<TrainableRule>& rules,
                                                   int64_t command) = 0;
  virtual absl::StatusOr<TrainabilityChange> AddRules(const std::vector<TrainableRule>& rules,
                                                      int64_t command) = 0;
  virtual absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) = 0;
};

// Threading: the session's thread. Everything but the constructor may be a collective.
class Commands {
 public:
  // All outlive it. `standing` and `schedule` are changed.
  struct Parts {
    const CommandSource* source;
    CommandEffects* effects;
    const optim::Schedule* learning_rates;
    CommandSchedule* schedule;
    Standing* standing;
    const SessionReports* reports;
    // Between two roll calls of a job that is halted.
    std::chrono::milliseconds pause_beat{200};
  };
  explicit Commands(const Parts& parts) : parts_(parts) {}

  // Carries out what is due now that every rank holds the commands up to `newest`, and while the
  // job is halted, waits for more. True when there was anything. What goes wrong with a command
  // alone is that command's end.
  absl::StatusOr<bool> Apply(int64_t newest);

  // Where some rank was told that the job goes on elsewhere: saves a checkpoint and stops.
  absl::Status EndHere();

  // At the start of a session. Says again how the commands went that the checkpoint has and the
  // coordinator has not heard of: their reports were lost with the process that wrote it.
  void TellUnreported() const;

 private:
  absl::Status Apply(const CommandSchedule::Due& due);
  absl::Status Apply(const Command& command, const NoCommand&) { return absl::OkStatus(); }
  absl::Status Apply(const Command& command, const StopCommand&);
  absl::Status Apply(const Command& command, const SaveCheckpointCommand&);
  absl::Status Apply(const Command& command, const SetLearningRateCommand& set);
  absl::Status Apply(const Command& command, const SetTrainabilityCommand& set);
  absl::Status Apply(const Command& command, const RefreshCommand&);
  absl::Status Apply(const Command& command, const PauseCommand&);
  absl::Status Apply(const Command& command, const ResumeCommand&);
  // Cancel carries it out: it needs more than the command.
  absl::Status Apply(const Command& command, const CancelCommand&) { return absl::OkStatus(); }
  absl::Status Cancel(const CommandSchedule::Due& due, int64_t target);

  // Says that it took effect, and how it ended: at once, so that a change which the workers do not
  // survive was none.
  void Finish(const Command& command, decltype(CommandFinished::result) result = {});
  // The same of one that did nothing. reason: CommandFinished's.
  void Fail(const Command& command, const absl::Status& status, const std::string& reason);
  // Says of a command that it took effect now.
  void TellApplied(int64_t number);
  // Fails a command of a job that trains nothing: then false.
  bool NeedsTraining(const Command& command);
  bool can_save() const {
    return parts_.effects->has_checkpoints() && parts_.effects->trains() &&
           parts_.standing->step > 0;
  }

  const Parts parts_;
  bool paused_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_COMMANDS_H_
