// Where in a job's stages a session that starts at a given step goes on, and what is due after a
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

// What is left of `stages` once `step` optimizer steps are done: fit stages that are complete fall
// away, and so do other stages that a later fit stage has left behind. A validation at exactly
// `step` is run (again): it changes nothing.
std::vector<PlannedStage> RemainingStages(const std::vector<Stage>& stages, int64_t step);

// Optimizer steps of all fit stages together.
int64_t TotalSteps(const std::vector<Stage>& stages);

// What is to be done once a step of a fit stage is.
struct Due {
  bool end = false;  // the stage is over
  bool validate = false;
  bool save = false;
  bool last_save = false;  // that one is the last of the job's training

  bool any() const { return end || validate || save; }
};
struct DueRules {
  FitUntil stage;
  bool checkpoints = false;  // the job has any
  int64_t save_every = 0;    // steps; 0: only at the end of each fit stage
  int64_t total_steps = 0;   // of the job
};
// step: optimizer steps done. ran_out: training ends before the next step, because a rank has no
// input for it (uneven_inputs: stop_at_first).
Due DueAfter(int64_t step, bool ran_out, const DueRules& rules);

// Whether the validation that is due waits for whoever goes on from here, where the job is to leave
// now: what it has computed is saved before a pass that may take long. A job without checkpoints
// comes to this step again, except for its last one: there it is nearly done.
bool ValidatesElsewhere(const Due& due, bool checkpoints);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STAGES_H_
