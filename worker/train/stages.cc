#include "worker/train/stages.h"

#include <algorithm>
#include <variant>

#include "common/overloaded/overloaded.h"

namespace muster::train {

bool AnyFit(const std::vector<Stage>& stages) {
  return std::any_of(stages.begin(), stages.end(),
                     [](const Stage& stage) { return std::holds_alternative<FitStage>(stage); });
}

bool CountsInEpochs(const std::vector<Stage>& stages) {
  return std::any_of(stages.begin(), stages.end(), [](const Stage& stage) {
    const auto* fit = std::get_if<FitStage>(&stage);
    return fit != nullptr && fit->epochs > 0;
  });
}

std::vector<PlannedStage> PlanStages(const std::vector<Stage>& stages, int64_t steps_per_epoch,
                                     const std::vector<std::pair<int64_t, int64_t>>& ended) {
  std::vector<PlannedStage> planned;
  int64_t begin = 0;
  for (const Stage& stage : stages) {
    PlannedStage& added = planned.emplace_back();
    added.index = static_cast<int64_t>(planned.size()) - 1;
    added.begin = begin;
    std::visit(Overloaded{[&](const FitStage& fit) {
                            // The steps of the unit in which the stage counts.
                            const int64_t unit = fit.epochs > 0 ? steps_per_epoch : 1;
                            const int64_t units = fit.epochs > 0 ? fit.epochs : fit.steps;
                            int64_t steps = units * unit;
                            if (fit.limit_steps > 0) steps = std::min(steps, fit.limit_steps);
                            int64_t end = begin + steps;
                            for (const auto& [index, step] : ended) {
                              if (index == added.index) end = std::clamp(step, begin, end);
                            }
                            added.what = FitUntil{.end = end,
                                                  .validate_every = fit.validate_every * unit,
                                                  .begin = begin,
                                                  .stage = added.index,
                                                  .passes = fit.passes};
                            begin = end;
                          },
                          [&](const auto& other) { added.what = other; }},
               stage);
  }
  return planned;
}

std::vector<Stage> WithoutLimits(std::vector<Stage> stages) {
  for (Stage& stage : stages) {
    if (auto* fit = std::get_if<FitStage>(&stage)) fit->limit_steps = 0;
  }
  return stages;
}

std::optional<FitUntil> FitOfStep(const std::vector<PlannedStage>& stages, int64_t step) {
  for (const PlannedStage& stage : stages) {
    const auto* fit = std::get_if<FitUntil>(&stage.what);
    if (fit != nullptr && fit->begin < step && step <= fit->end) return *fit;
  }
  return std::nullopt;
}

int64_t TotalSteps(const std::vector<PlannedStage>& stages) {
  int64_t end = 0;
  for (const PlannedStage& stage : stages) {
    if (const auto* fit = std::get_if<FitUntil>(&stage.what)) end = fit->end;
  }
  return end;
}

bool FitFollows(const std::vector<PlannedStage>& stages, int64_t index) {
  return std::any_of(stages.begin(), stages.end(), [index](const PlannedStage& stage) {
    return stage.index > index && stage.trains();
  });
}

std::vector<PlannedStage> RemainingStages(const std::vector<PlannedStage>& stages, int64_t step,
                                          const StagesDone& done) {
  std::vector<PlannedStage> remaining;
  for (const PlannedStage& stage : stages) {
    const auto* fit = std::get_if<FitUntil>(&stage.what);
    const bool over = fit != nullptr      ? step >= fit->end
                      : step == done.step ? step > stage.begin || stage.index < done.stages
                                          : step > stage.begin;
    if (!over) remaining.push_back(stage);
  }
  return remaining;
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
