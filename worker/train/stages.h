// Where in a job's stages a session that starts at a given step goes on. Pure.
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

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STAGES_H_
