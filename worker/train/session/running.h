// The fourth phase of a session (phases: opened.h): runs the remaining stages. running.cc has the
// stages and the training loop. boundary.cc has the work after a step and the end of training.
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

// Returns freed memory to the system and logs the resident memory. The next stage may need blocks
// of other sizes, for which malloc would take new pages. `when`: for the log.
void ReturnFreedMemory(const std::string& when);

// ---- The parts of a running session, by subject (running_parts.cc).

LiveState LiveStateOf(Loaded* loaded);

// The roll calls of a session. `each_step`: the calls that overlap with steps, and the blocking
// calls of TrainabilityChanges. `between`: the calls of all other code between two steps; uses
// `each_step`.
struct RollCalls {
  RollCalls(Loaded* loaded, const CommandSchedule* schedule, const Background* background);

  SessionRollCall each_step;
  Calls between;
};

// The objects that write files.
struct Writers {
  Writers(Loaded* loaded, const CommandSchedule* schedule, LiveState* live, Background* background);

  std::optional<Saving> saving;  // absent: the job has no checkpoints
  BestCheckpoint best;
  std::optional<Gathering> gathering;           // absent: the job trains nothing
  std::optional<WeightsExport> weights_export;  // absent: the job exports no weights
};

// The objects that use the model without training.
struct Forwards {
  Forwards(Loaded* loaded, LiveState* live, Calls* calls, const Background* background);

  EvaluationPasses passes;
  const ForwardDependencies parts;
  SessionEvaluation evaluation;
  SessionGenerator generator;
  const PredictDependencies predict;
};

// Returns nullopt if the job trains nothing.
std::optional<TrainabilityChanges> ChangesOf(Loaded* loaded, SessionRollCall* calls);
// Returns the parts for SkipSamples. Called only if the job trains.
SkipDependencies SkipDependenciesOf(Loaded* loaded);

// Threading: one thread.
class Running {
 public:
  explicit Running(std::unique_ptr<Loaded> loaded);

  // Makes a roll call, so that the ranks know that all of them have come this far, and reports the
  // start of the session. A collective.
  absl::Status Begin();
  absl::StatusOr<SessionEnd> Run();

 private:
  // ---- Stages and steps. Collectives.
  absl::StatusOr<SessionEnd> RunStages();
  // Runs the stage to its end, from its begin or, for a fit stage, from the steps done.
  absl::Status RunStage(const PlannedStage& stage);
  // Runs other work than steps: a stage that does not train, or a validation pass of an earlier
  // session. Repeats a roll call, the due commands, and `work`, until `work` returns true
  // (complete) or the session stops. Interrupted work returns false and is run again.
  absl::Status RunToEnd(const std::function<absl::StatusOr<bool>()>& work);
  absl::Status Predict(int64_t stage, const PredictStage& predict);
  absl::Status Fit(FitUntil stage);
  absl::Status Step(const RollCallPlan& plan);
  // Returns true if training must end before the step of this plan: some rank has less input than
  // others, and the job stops at the first such step. FAILED_PRECONDITION: training would end
  // before its first step.
  absl::StatusOr<bool> RanOut(const RollCallPlan& plan);
  void BeginStage(const char* stage);
  // Returns the stage in the current plan, which a skip of samples may have changed.
  FitUntil Planned(const FitUntil& stage) const {
    return std::get<FitUntil>(loaded_->stages[stage.stage].what);
  }

  // ---- The work after a step (boundary.cc). Collectives.
  // Returns the plan of the next step, or nullopt if nothing was due. If the stage ends early, this
  // step becomes the end of `stage`.
  absl::StatusOr<std::optional<RollCallPlan>> AtBoundary(FitUntil* stage, const RollCallPlan& next);
  DueRules RulesOf(const FitUntil& stage) const;
  // Runs the validation pass of a fit stage after this step. If the pass ends the stage, this step
  // becomes the end of `stage`, and the stages are planned again. Returns true if the checkpoint of
  // this step becomes the best one, should its save succeed; nullopt if the pass was interrupted.
  absl::StatusOr<std::optional<bool>> ValidateInFit(FitUntil* stage);
  // Finds the tokens of the prompt of a fit stage, if there is one. Errors: those of the prompt.
  absl::Status PrepareSample(int64_t stage);
  // Continues the prompt of the stage, if there is one, and reports the text.
  absl::Status ReportSample();
  // Runs the validation pass that the previous session left to this session.
  absl::Status ValidateDue();

  // ---- The end of training and of the job (boundary.cc). Collectives.
  // Frees the memory that only training needs, unless a save at this step may still need it.
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
  std::optional<models::GenerationRequest> sample_;  // FitStage::sample of the present stage
  std::string ended_early_;  // why training ended early, with stop_at_first
  absl::Status final_save_;  // the result of the save after training
  // The last member, because a running task uses the members above.
  Background background_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_RUNNING_H_
