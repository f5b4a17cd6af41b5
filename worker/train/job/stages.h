// The stages of a job in optimizer steps: which of them remain for a session that starts at a given
// step, and what follows a step. Pure.
//
// A stage has a begin (optimizer steps done before it) and an end. A stage that trains continues
// where the steps have come to. Any other stage changes nothing that training uses: a session that
// finds it begun runs it from its beginning, with the same results, and one that is told that it is
// over (StagesDone) does not run it.
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
// `period` steps after it. In a stage by epochs the first one may come sooner or later than the
// period says, if the batch or the data have changed in its epoch. None if `period` is 0.
struct PassSteps {
  int64_t first = 0;
  int64_t second = 0;
  int64_t period = 0;

  bool Has(int64_t step) const {
    if (period == 0) return false;
    return step == first || (step >= second && (step - second) % period == 0);
  }
  // The last one that is not after `end`; 0: there is none.
  int64_t LastUpTo(int64_t end) const {
    if (period == 0 || end < first) return 0;
    return end < second ? first : end - (end - second) % period;
  }
};

struct FitUntil {
  int64_t end = 0;  // optimizer steps done when the stage is over, counted over the whole job
  PassSteps validate = {};  // of those that this session may do
  int64_t begin = 0;        // optimizer steps done when the stage began
  int64_t stage = 0;        // its index in the job's list
  PassRules passes = {};
  // The steps that the stage would have without FitStage::limit_steps, however early it ends.
  int64_t full = 0;
};

struct PlannedStage {
  int64_t index = 0;  // in the job's list
  int64_t begin = 0;  // optimizer steps done before it, counted over the whole job
  std::variant<FitUntil, ValidateStage, TestStage, PredictStage> what;

  bool trains() const { return std::holds_alternative<FitUntil>(what); }
};

// Whether the job trains.
bool AnyFit(const std::vector<Stage>& stages);
// Whether some fit stage counts in epochs.
bool CountsInEpochs(const std::vector<Stage>& stages);

// `timeline`: where the steps lie in data.train; used only where a stage counts in epochs. Its
// newest span begins with the next step, or earlier. A stage of E epochs that begins at a place of
// an epoch is over at the same place E epochs later, and its passes over the data end there.
// Samples that a command left out count as taken: also those that were left out at its begin.
// `ended`: the fit stages that ended early, each with the steps done at its end
// (ValidationRecord::ended); those after it begin there.
std::vector<PlannedStage> PlanStages(const std::vector<Stage>& stages,
                                     const data::Timeline& timeline,
                                     const std::vector<std::pair<int64_t, int64_t>>& ended = {});

// Whether a validation pass by epochs follows the last step before the newest span, and followed no
// step with the pace before it: with the new batch or data, the rest of the epoch is dropped, or is
// not there.
bool PassDueAtChange(const std::vector<Stage>& stages, const std::vector<PlannedStage>& planned,
                     const data::Timeline& timeline);

// The fit stage of which this was a step, the first one of the job being 1. Absent: there is none.
std::optional<FitUntil> FitOfStep(const std::vector<PlannedStage>& stages, int64_t step);

// Optimizer steps of all fit stages together.
int64_t TotalSteps(const std::vector<PlannedStage>& stages);
// The same without limits and early ends (FitUntil::full): where schedules end.
int64_t ScheduledSteps(const std::vector<PlannedStage>& stages);

// Whether a fit stage comes after the stage with this index.
bool FitFollows(const std::vector<PlannedStage>& stages, int64_t index);

// Earlier sessions have run the first `stages` of the list to their ends, the newest of them after
// `step` optimizer steps.
struct StagesDone {
  int64_t stages = 0;
  int64_t step = 0;
};

// The stages that remain after `step` optimizer steps. Left out are fit stages that are complete,
// other stages that come before a fit stage which has begun, and, if `done` is of this step, those
// that it counts. Where it is of another step the session starts from another state than those
// stages saw, and they are run (again).
std::vector<PlannedStage> RemainingStages(const std::vector<PlannedStage>& stages, int64_t step,
                                          const StagesDone& done = {});

// What must be done after a step of a fit stage.
struct Due {
  bool end = false;  // the stage is over
  bool validate = false;
  bool save = false;
  bool last_save = false;       // the checkpoint is the last one of the job's training
  bool export_weights = false;  // during training; at its end they are exported anyway

  bool any() const { return end || validate || save || export_weights; }
};
struct DueRules {
  FitUntil stage;
  bool checkpoints = false;  // the job has any
  int64_t save_every = 0;    // steps; 0: only at the end of each fit stage
  int64_t export_every = 0;  // steps; 0: only when the job succeeds
  int64_t total_steps = 0;   // of the job
};
// step: optimizer steps done. ran_out: training ends before the next step, because a rank has no
// input for it (uneven_inputs: stop_at_first).
Due DueAfter(int64_t step, bool ran_out, const DueRules& rules);

// For a job that must leave its nodes now: whether the next session runs the validation pass that
// follows this step. If it does, a checkpoint is saved before a pass that may take long. A job
// without checkpoints repeats this step anyway, and leaves the pass to the next session too; only
// at the end of a stage, where it may be nearly complete, it validates now.
bool ValidatesElsewhere(const Due& due, bool checkpoints);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_JOB_STAGES_H_
