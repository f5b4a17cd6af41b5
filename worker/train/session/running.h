// The fourth phase of a session: goes through the stages that are left. running.cc has the stages
// and the training loop, boundary.cc what follows a step and how training ends.
#ifndef MUSTER_WORKER_TRAIN_SESSION_RUNNING_H_
#define MUSTER_WORKER_TRAIN_SESSION_RUNNING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/commands/commands.h"
#include "worker/train/evaluate/evaluate.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/job/job.h"
#include "worker/train/job/stages.h"
#include "worker/train/predict/predictor.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/rollcall/roll_call_plan.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/background.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/live_state.h"
#include "worker/train/save/saving.h"
#include "worker/train/save/weights_export.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/session/best_checkpoint.h"
#include "worker/train/session/loaded.h"
#include "worker/train/session/session_parts.h"
#include "worker/train/start/skipping.h"
#include "worker/train/trainability/trainability_changes.h"

namespace muster::train {

// Returns freed memory to the system, and logs what is resident: a stage may need pieces of other
// sizes than the one before, and malloc would take new pages for them. `when`: for the log.
void ReturnFreedMemory(const std::string& when);

// ---- What a running session is composed of, by subject (running_parts.cc).

LiveState LiveStateOf(Loaded* loaded);

// The roll calls of a session. `each_step`: those that overlap with steps, and the blocking ones of
// TrainabilityChanges. `between`: those of all other code between two steps; it uses `each_step`.
struct RollCalls {
  RollCalls(Loaded* loaded, const CommandSchedule* schedule, const Background* background);

  SessionRollCall each_step;
  Calls between;
};

// What writes files.
struct Writers {
  Writers(Loaded* loaded, const CommandSchedule* schedule, LiveState* live, Background* background);

  std::optional<Saving> saving;  // absent: the job has no checkpoints
  BestCheckpoint best;
  std::optional<Gathering> gathering;           // absent: the job trains nothing
  std::optional<WeightsExport> weights_export;  // absent: the job exports no weights
};

// What computes with the model without training it.
struct Forwards {
  Forwards(Loaded* loaded, LiveState* live, Calls* calls, const Background* background);

  EvaluationPasses passes;
  const ForwardParts parts;
  SessionEvaluation evaluation;
  SessionGenerator generator;
  const PredictParts predict;
};

// Absent: the job trains nothing.
std::optional<TrainabilityChanges> ChangesOf(Loaded* loaded, SessionRollCall* calls);
// Of a job that trains.
SkipParts SkipPartsOf(Loaded* loaded);

// Threading: one thread.
class Running {
 public:
  explicit Running(std::unique_ptr<Loaded> loaded);

  // A collective: the ranks find that all of them have come this far. Then the session reports how
  // it starts.
  absl::Status Begin();
  absl::StatusOr<SessionEnd> Run();

 private:
  // ---- Stages and steps. Collectives.
  absl::StatusOr<SessionEnd> RunStages();
  // From its begin, or from where the steps have come to, to its end.
  absl::Status RunStage(const PlannedStage& stage);
  // Runs work that is not a step: a stage that does not train, or a pass that is left over. In turn
  // the roll call, the commands that are due, and `work`, until `work` returns true (it is done) or
  // the session stops. Work that was interrupted returns false, and is begun again.
  absl::Status RunToEnd(const std::function<absl::StatusOr<bool>()>& work);
  absl::Status Predict(int64_t stage, const PredictStage& predict);
  absl::Status Fit(FitUntil stage);
  absl::Status Step(const RollCallPlan& plan);
  // True if training must end before the step of this plan, because some rank has less input than
  // others and the job stops at the first such step. FAILED_PRECONDITION: training would end before
  // its first step.
  absl::StatusOr<bool> RanOut(const RollCallPlan& plan);
  void BeginStage(const char* stage);
  // The stage as it is planned now: a command may have left out samples of it.
  FitUntil Planned(const FitUntil& stage) const {
    return std::get<FitUntil>(loaded_->stages[stage.stage].what);
  }

  // ---- What follows a step (boundary.cc). Collectives.
  // Returns the plan of the next step, or nothing if there was nothing to do. If the stage ends
  // early, `stage` has this step as its end.
  absl::StatusOr<std::optional<RollCallPlan>> AtBoundary(FitUntil* stage, const RollCallPlan& next);
  DueRules RulesOf(const FitUntil& stage) const;
  // The pass of a fit stage after this step. If it ends the stage, this step becomes the end of
  // `stage`, and the stages are planned anew. True: the checkpoint of this step becomes the best
  // one, if it can be written. None: the pass was interrupted.
  absl::StatusOr<std::optional<bool>> ValidateInFit(FitUntil* stage);
  // Runs the validation pass that the previous session left to this one.
  absl::Status ValidateDue();

  // ---- Ends (boundary.cc). Collectives.
  // Frees what only training needs, unless a checkpoint of this step may still need it.
  absl::Status EndTraining();
  absl::Status Export();

  bool has_checkpoints() const { return loaded_->checkpoints != nullptr; }
  Opened& opened() { return loaded_->opened(); }
  const Job& job() const { return loaded_->opened().job; }
  SessionState& state() { return loaded_->opened().state; }
  const SessionReports& reports() const { return loaded_->opened().reports; }

  const std::unique_ptr<Loaded> loaded_;
  CommandSchedule schedule_;
  RollCalls calls_;
  LiveState live_;
  Writers writers_;
  Forwards forwards_;
  std::optional<TrainabilityChanges> changes_;  // absent: the job trains nothing
  Commands commands_;
  std::string ended_early_;  // why, with uneven_inputs: stop_at_first
  absl::Status final_save_;  // how the save after the last step of training ended
  // Last: a task that runs uses what is above.
  Background background_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_RUNNING_H_
