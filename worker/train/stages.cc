#include "worker/train/stages.h"

#include <variant>

#include "common/overloaded/overloaded.h"

namespace muster::train {

std::vector<PlannedStage> RemainingStages(const std::vector<Stage>& stages, int64_t step) {
  std::vector<PlannedStage> remaining;
  int64_t begin = 0;
  for (const Stage& stage : stages) {
    std::visit(Overloaded{[&](const FitStage& fit) {
                            const int64_t end = begin + fit.steps;
                            if (step < end) {
                              remaining.push_back(FitUntil{end, fit.validate_every, begin});
                            }
                            begin = end;
                          },
                          [&](const ValidateStage& validate) {
                            if (step <= begin) remaining.push_back(validate);
                          }},
               stage);
  }
  return remaining;
}

int64_t TotalSteps(const std::vector<Stage>& stages) {
  int64_t steps = 0;
  for (const Stage& stage : stages) {
    steps += std::visit(Overloaded{[](const FitStage& fit) { return fit.steps; },
                                   [](const ValidateStage&) { return int64_t{0}; }},
                        stage);
  }
  return steps;
}

Due DueAfter(int64_t step, bool ran_out, const DueRules& rules) {
  const auto every = [](int64_t steps, int64_t period) {
    return period > 0 && steps % period == 0;
  };
  Due due;
  due.end = step == rules.stage.end || ran_out;
  due.validate = every(step - rules.stage.begin, rules.stage.validate_every);
  due.save = rules.checkpoints && (due.end || every(step, rules.save_every));
  const bool last = due.end && (ran_out || step == rules.total_steps);
  due.last_save = due.save && last;
  due.export_weights = every(step, rules.export_every) && !last;
  return due;
}

bool ValidatesElsewhere(const Due& due, bool checkpoints) {
  return due.validate && (checkpoints || !due.end);
}

}  // namespace muster::train
