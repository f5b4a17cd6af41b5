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
#include "proto/muster/v1/operation.pb.h"
#include "worker/optim/schedule.h"
#include "worker/train/evaluate/evaluate.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/saving.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/trainability/trainability_changes.h"

namespace muster::train {

// Threading: the session's thread. Everything but the constructor may be a collective.
class Commands {
 public:
  // All outlive it. Commands changes `session_state` and `schedule` (of the commands), and through
  // `skip_data` the stages and `learning_rates`.
  struct Parts {
    const CommandSource* source;
    std::function<absl::StatusOr<RollCallPlan>()> call;  // Calls::CallNow
    Saver* saver;                   // null: the job has no checkpoints
    Gatherer* gatherer;             // null: the job trains nothing
    TrainabilityChanger* training;  // likewise
    // SkipSamples; called only if the job trains.
    std::function<absl::StatusOr<v1::SkippedData>(int64_t samples, bool dry_run)> skip_data;
    Evaluator* evaluator;
    Generator* generator;
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
  absl::Status Stop(const Command& command);
  // A roll call, after which the command has taken effect: what takes long begins with it.
  absl::Status Begin(const Command& command);
  void SetLearningRate(const Command& command);
  absl::Status SetTrainability(const Command& command);
  absl::Status Refresh(const Command& command);
  absl::Status SkipData(const Command& command);
  absl::Status RunStage(const Command& command);
  absl::Status Sample(const Command& command);
  absl::Status Cancel(const CommandSchedule::Due& due);

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
  // Returns true if the job has what the command's rule says it needs, apart from a model that
  // generates. If not, reports that the command failed.
  bool HasNeeds(const Command& command);
  bool trains() const { return parts_.training != nullptr; }
  bool can_save() const {
    return parts_.saver != nullptr && trains() && parts_.session_state->step > 0;
  }

  const Parts parts_;
  bool paused_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_COMMANDS_COMMANDS_H_
