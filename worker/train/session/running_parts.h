// What a running session is composed of, by subject.
#ifndef MUSTER_WORKER_TRAIN_SESSION_RUNNING_PARTS_H_
#define MUSTER_WORKER_TRAIN_SESSION_RUNNING_PARTS_H_

#include <optional>

#include "worker/train/commands/commands.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/session_evaluation.h"
#include "worker/train/evaluate/session_generator.h"
#include "worker/train/predict/predictor.h"
#include "worker/train/rollcall/calls.h"
#include "worker/train/rollcall/session_roll_call.h"
#include "worker/train/save/background.h"
#include "worker/train/save/gathering.h"
#include "worker/train/save/live_state.h"
#include "worker/train/save/saving.h"
#include "worker/train/save/weights_export.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/session/best_checkpoint.h"
#include "worker/train/session/loaded.h"
#include "worker/train/start/skipping.h"
#include "worker/train/trainability/trainability_changes.h"

namespace muster::train {

LiveState LiveStateOf(Loaded* loaded);

// The roll calls of a session. `between` is for all code between two steps but changes of which
// parameters are trained; it uses `each_step`.
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
  SessionEvaluation evaluation;
  SessionGenerator generator;
  Predictor predictor;
};

// Absent: the job trains nothing.
std::optional<TrainabilityChanges> ChangesOf(Loaded* loaded, SessionRollCall* calls);
std::optional<Skipping> SkippingOf(Loaded* loaded);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_RUNNING_PARTS_H_
