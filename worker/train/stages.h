// Which of a job's stages remain for a session that starts at a given step, and what follows a
// step. Pure.
#ifndef MUSTER_WORKER_TRAIN_STAGES_H_
#define MUSTER_WORKER_TRAIN_STAGES_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "worker/train/job.h"

namespace muster::train {

struct FitUntil {
  int64_t end = 0;  // optimizer steps done when the stage is over, counted over the whole job
  int64_t validate_every = 0;
  int64_t begin = 0;  // optimizer steps done when the stage began
};
using PlannedStage = std::variant<FitUntil, ValidateStage>;

// The stages that remain after `step` optimizer steps. Left out are fit stages that are complete,
// and other stages that come before a fit stage which has begun. A validation at exactly `step` is
// run (again): it changes nothing.
std::vector<PlannedStage> RemainingStages(const std::vector<Stage>& stages, int64_t step);

// Optimizer steps of all fit stages together.
int64_t TotalSteps(const std::vector<Stage>& stages);

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

#endif  // MUSTER_WORKER_TRAIN_STAGES_H_
