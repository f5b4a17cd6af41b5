// Carries out the commands of the job's log, each at its step boundary (command_schedule.h) and the
// same on all ranks, and reports how it ended.
#ifndef MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_
#define MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/optim/schedule.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/roll_call_plan.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/saving.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::train {

// The operations of a session that commands use. Their errors end the session, apart from those of
// CheckRules and CheckSample, and from those inside a result, which are the same on all ranks.
class CommandEffects {
 public:
  virtual ~CommandEffects() = default;

  virtual bool trains() const = 0;
  // No stage that trains is left, and what only training needs has been freed.
  virtual bool training_over() const = 0;
  virtual bool has_checkpoints() const = 0;
  // A roll call for the next step. Its success means that training may continue from here, because
  // the losses are finite on every rank.
  virtual absl::StatusOr<RollCallPlan> CallNow() = 0;
  // As Saving's; only if the job has checkpoints and trains.
  virtual absl::Status Save(int64_t command, Saving::Told told) = 0;
  virtual absl::StatusOr<Saving::Saved> SaveLast() = 0;
  // As Gathering's. This and the following methods are called only if the job trains, apart from
  // those that say otherwise.
  virtual absl::Status Gather(const GatherOptimizerStateCommand& gather, int64_t command,
                              Gathering::Told told) = 0;
  virtual absl::Status Consolidate(const ConsolidateCommand& consolidate, int64_t command,
                                   Gathering::ToldOfModel told) = 0;
  virtual absl::StatusOr<bool> CancelGather(int64_t command) = 0;
  virtual absl::Status LeaveGatherToNextGeneration() = 0;
  virtual void RemoveLeftoversOfGather(const std::string& path) = 0;
  // Whether the job has data for this stage; false for a stage that is not known.
  virtual bool HasDataFor(const std::string& stage) const = 0;
  // A pass of evaluation, and reports it as that of a stage. Also if the job does not train.
  using Evaluated = absl::StatusOr<StageEvaluated>;
  virtual absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) = 0;
  // FAILED_PRECONDITION: the model cannot generate. INVALID_ARGUMENT: the request does not fit it.
  virtual absl::Status CheckSample(const SampleCommand& sample) const = 0;
  // Continues a prompt that CheckSample allows. Also if the job does not train.
  using SampleMade = absl::StatusOr<Sampled>;
  virtual absl::StatusOr<SampleMade> Sample(const SampleCommand& sample) = 0;
  // INVALID_ARGUMENT: the rules do not fit the model.
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
  // All outlive it. Commands changes `session_state` and `schedule`.
  struct Parts {
    const CommandSource* source;
    CommandEffects* effects;
    const optim::Schedule* learning_rates;
    CommandSchedule* schedule;
    SessionState* session_state;
    const SessionReports* reports;
    // The time between two roll calls of a paused job.
    std::chrono::milliseconds pause_beat{200};
  };
  explicit Commands(const Parts& parts) : parts_(parts) {}

  // Carries out the commands that take effect now, given that every rank holds the commands up to
  // `newest`. While the job is paused, it waits for more commands. Returns true if there was any
  // command. An error that concerns one command only is reported as the end of that command.
  absl::StatusOr<bool> Apply(int64_t newest);

  // Called if some rank was told that the job continues on other nodes: saves a checkpoint and
  // stops.
  absl::Status EndHere();

  // At the start of a session: reports again how those commands ended that the checkpoint includes
  // and of which the coordinator has not heard. Their reports were lost with the process that wrote
  // the checkpoint.
  void TellUnreported() const;

 private:
  absl::Status Apply(const CommandSchedule::Due& due);
  absl::Status Apply(const Command& command, const NoCommand&) { return absl::OkStatus(); }
  absl::Status Apply(const Command& command, const StopCommand&);
  absl::Status Apply(const Command& command, const SaveCheckpointCommand&);
  absl::Status Apply(const Command& command, const GatherOptimizerStateCommand& gather);
  absl::Status Apply(const Command& command, const ConsolidateCommand& consolidate);
  absl::Status Apply(const Command& command, const SetLearningRateCommand& set);
  absl::Status Apply(const Command& command, const SetTrainabilityCommand& set);
  absl::Status Apply(const Command& command, const RefreshCommand&);
  absl::Status Apply(const Command& command, const RunStageCommand& run);
  absl::Status Apply(const Command& command, const SampleCommand& sample);
  absl::Status Apply(const Command& command, const PauseCommand&);
  absl::Status Apply(const Command& command, const ResumeCommand&);
  absl::Status Cancel(const CommandSchedule::Due& due, int64_t target);

  // Reports that the command took effect and how it ended. Both are reported together after the
  // change, so that a change during which the workers end counts as not made.
  void Finish(const Command& command, decltype(CommandFinished::result) result = {});
  // Reports how a command ended that has taken effect before, because it takes long: its file is
  // written, its pass is done. If the workers end meanwhile, the next generation carries it out
  // again.
  template <typename Result>
  std::function<void(const absl::StatusOr<Result>&)> ReportEndOf(const Command& command) const;
  // Reports that the command took effect without changing anything, and why. `reason`: as in
  // CommandFinished.
  void Fail(const Command& command, const absl::Status& status, const std::string& reason);
  // Reports that the command took effect at this step.
  void TellApplied(int64_t number);
  // Returns true if the job trains. If not, reports that the command failed.
  bool NeedsTraining(const Command& command);
  // The same of a job that still trains, or may.
  bool NeedsOptimizer(const Command& command);
  bool can_save() const {
    return parts_.effects->has_checkpoints() && parts_.effects->trains() &&
           parts_.session_state->step > 0;
  }

  const Parts parts_;
  bool paused_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_
