// The stages of a job, planned in optimizer steps: the remaining stages of a session that starts at
// a given step, and the actions that are due after a step. Pure.
//
// A stage has a begin (optimizer steps done before the stage) and an end. A fit stage that was
// interrupted continues from the steps done. A stage of another kind changes nothing that training
// uses. A new session runs an interrupted stage of such a kind again from its beginning, with the
// same results. A session does not run stages that StagesDone counts as over.
#ifndef MUSTER_WORKER_TRAIN_JOB_STAGES_H_
#define MUSTER_WORKER_TRAIN_JOB_STAGES_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "worker/data/timeline.h"
#include "worker/train/job/job.h"

namespace muster::train {

// The steps that a validation pass follows, in optimizer steps done: `first`, `second`, and each
// `period` steps after `second`. None if `period` is 0. In a stage by epochs, the distance to
// `first` may differ from `period`, if the batch or the data changed within the epoch.
struct PassSteps {
  int64_t first = 0;
  int64_t second = 0;
  int64_t period = 0;

  bool Has(int64_t step) const {
    if (period == 0) return false;
    return step == first || (step >= second && (step - second) % period == 0);
  }
  // Returns the last step with a pass up to and including `end`; 0: none.
  int64_t LastUpTo(int64_t end) const {
    if (period == 0 || end < first) return 0;
    return end < second ? first : end - (end - second) % period;
  }
};

struct FitUntil {
  int64_t end = 0;  // optimizer steps done when the stage is over, counted over the whole job
  PassSteps validate = {};  // the passes that this session may run
  int64_t begin = 0;        // optimizer steps done when the stage began
  int64_t stage = 0;        // the stage's index in the job's list
  PassRules passes = {};
  // The steps of the stage without FitStage::limit_steps and without an early end.
  int64_t full = 0;
};

struct PlannedStage {
  int64_t index = 0;  // the stage's index in the job's list
  int64_t begin = 0;  // optimizer steps done before the stage, counted over the whole job
  std::variant<FitUntil, ValidateStage, TestStage, PredictStage> what;

  bool trains() const { return std::holds_alternative<FitUntil>(what); }
};

// Whether the job trains.
bool AnyFit(const std::vector<Stage>& stages);
// Whether some fit stage counts in epochs.
bool CountsInEpochs(const std::vector<Stage>& stages);

// Plans the stages. `timeline`: the places of the steps in data.train; used only for stages by
// epochs. Its newest span begins with the next step, or earlier. A stage of E epochs ends E epochs
// after its begin, at the same place in the epoch; each of its passes over the data also ends at
// this place. Skipped samples count as taken, even at the begin of the stage. `ended`: the fit
// stages that ended early, each with the steps done at its end (ValidationRecord::ended). The next
// stage begins at such an early end.
std::vector<PlannedStage> PlanStages(const std::vector<Stage>& stages,
                                     const data::Timeline& timeline,
                                     const std::vector<std::pair<int64_t, int64_t>>& ended = {});

// Whether a validation pass is due at a change of batch or data, in a stage by epochs. The pass is
// due if the change completes an epoch: the rest of the epoch is dropped, or does not exist, with
// the new batch or data.
bool PassDueAtChange(const std::vector<Stage>& stages, const std::vector<PlannedStage>& planned,
                     const data::Timeline& timeline);

// Returns the fit stage with this step (the job's first step is 1). Absent: there is none.
std::optional<FitUntil> FitOfStep(const std::vector<PlannedStage>& stages, int64_t step);

// Optimizer steps of all fit stages together.
int64_t TotalSteps(const std::vector<PlannedStage>& stages);
// The same without limits and early ends (FitUntil::full). Schedules end with this step.
int64_t ScheduledSteps(const std::vector<PlannedStage>& stages);

// Whether a fit stage comes after the stage with this index.
bool FitFollows(const std::vector<PlannedStage>& stages, int64_t index);

// The first `stages` stages of the list have ended in earlier sessions. `step`: the optimizer steps
// done at the end of the newest of these stages.
struct StagesDone {
  int64_t stages = 0;
  int64_t step = 0;
};

// Returns the stages that remain after `step` optimizer steps. It leaves out:
// - complete fit stages;
// - other stages that come before a fit stage which has begun;
// - the stages that `done` counts, if `done` is of this step. If `done` is of another step, the
//   session starts from another state, and those stages run again.
std::vector<PlannedStage> RemainingStages(const std::vector<PlannedStage>& stages, int64_t step,
                                          const StagesDone& done = {});

// The actions that are due after a step of a fit stage.
struct Due {
  bool end = false;  // the stage is over
  bool validate = false;
  bool save = false;
  bool last_save = false;       // the checkpoint is the last one of the job's training
  bool export_weights = false;  // during training; the end of training exports anyway

  bool any() const { return end || validate || save || export_weights; }
};
struct DueRules {
  FitUntil stage;
  bool checkpoints = false;  // the job has checkpoints
  int64_t save_every = 0;    // steps; 0: only at the end of each fit stage
  int64_t export_every = 0;  // steps; 0: only when the job succeeds
  int64_t total_steps = 0;   // of the job
};
// Returns the actions after `step` optimizer steps. ran_out: training ends before the next step,
// because a rank has no input (uneven_inputs: stop_at_first).
Due DueAfter(int64_t step, bool ran_out, const DueRules& rules);

// Whether a job that must leave its nodes leaves this step's validation pass to the next session. A
// job with checkpoints always does: it saves a checkpoint first, because the pass may take long. A
// job without checkpoints repeats the step in the next session anyway. But at the end of a stage it
// validates now, because the job may be nearly complete.
bool ValidatesElsewhere(const Due& due, bool checkpoints);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_STAGES_H_
