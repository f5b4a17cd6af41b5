#include "worker/train/stages.h"

namespace muster::train {

std::vector<PlannedStage> RemainingStages(const std::vector<Stage>& stages, int64_t step) {
  std::vector<PlannedStage> remaining;
  int64_t begin = 0;
  for (const Stage& stage : stages) {
    if (const auto* fit = std::get_if<FitStage>(&stage)) {
      const int64_t end = begin + fit->steps;
      if (step < end) remaining.push_back(FitUntil{end, fit->validate_every, begin});
      begin = end;
    } else if (step <= begin) {
      remaining.push_back(std::get<ValidateStage>(stage));
    }
  }
  return remaining;
}

int64_t TotalSteps(const std::vector<Stage>& stages) {
  int64_t steps = 0;
  for (const Stage& stage : stages) {
    if (const auto* fit = std::get_if<FitStage>(&stage)) steps += fit->steps;
  }
  return steps;
}

}  // namespace muster::train
