#include "worker/train/job/stages.h"

#include <algorithm>

#include "common/overloaded/overloaded.h"
#include "worker/data/pace.h"

namespace muster::train {
namespace {

// The passes of a stage by epochs over the data.
class Passes {
 public:
  // `begin`: optimizer steps done before the stage.
  Passes(const data::Timeline& timeline, int64_t begin)
      : timeline_(timeline), begin_(begin), place_(timeline.BeginBeforeSkips(begin)) {}

  data::Position EndOf(int64_t passes) const { return {place_.epoch + passes, place_.cursor}; }
  // Returns the number of complete passes for a step that begins at `position`.
  int64_t Complete(data::Position position) const {
    return position.epoch - place_.epoch - (position.cursor < place_.cursor ? 1 : 0);
  }
  int64_t Steps(int64_t passes) const {
    return timeline_.Reaches(begin_, EndOf(passes)) - begin_;
  }
  PassSteps After(int64_t every) const {
    if (every == 0) return {};
    const data::Timeline::Span& newest = timeline_.newest();
    const int64_t from = std::max(begin_, newest.step);
    const int64_t next = (Complete(timeline_.BeginAfter(from)) / every + 1) * every;
    return {.first = timeline_.Reaches(from, EndOf(next)),
            .second = timeline_.Reaches(from, EndOf(next + every)),
            .period = every * newest.pace.steps_per_epoch()};
  }

 private:
  const data::Timeline& timeline_;
  const int64_t begin_;
  const data::Position place_;
};

FitUntil PlanFit(const FitStage& fit, int64_t begin, const data::Timeline& timeline) {
  FitUntil planned{.begin = begin, .passes = fit.passes};
  if (fit.epochs > 0) {
    const Passes passes(timeline, begin);
    planned.full = passes.Steps(fit.epochs);
    planned.validate = passes.After(fit.validate_every);
  } else {
    planned.full = fit.steps;
    if (const int64_t every = fit.validate_every; every > 0) {
      planned.validate = {begin + every, begin + 2 * every, every};
    }
  }
  const int64_t limit = fit.limit_steps > 0 ? fit.limit_steps : planned.full;
  planned.end = begin + std::min(planned.full, limit);
  return planned;
}

}  // namespace

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

std::vector<PlannedStage> PlanStages(const std::vector<Stage>& stages,
                                     const data::Timeline& timeline,
                                     const std::vector<std::pair<int64_t, int64_t>>& ended) {
  std::vector<PlannedStage> planned;
  int64_t begin = 0;
  for (const Stage& stage : stages) {
    PlannedStage& added = planned.emplace_back();
    added.index = static_cast<int64_t>(planned.size()) - 1;
    added.begin = begin;
    std::visit(Overloaded{[&](const FitStage& fit) {
                            FitUntil until = PlanFit(fit, begin, timeline);
                            until.stage = added.index;
                            for (const auto& [index, step] : ended) {
                              if (index != added.index) continue;
                              until.end = std::clamp(step, begin, until.end);
                            }
                            added.what = until;
                            begin = until.end;
                          },
                          [&](const auto& other) { added.what = other; }},
               stage);
  }
  return planned;
}

bool PassDueAtChange(const std::vector<Stage>& stages, const std::vector<PlannedStage>& planned,
                     const data::Timeline& timeline) {
  const data::Timeline::Span& newest = timeline.newest();
  const auto until = FitOfStep(planned, newest.step);
  if (!until.has_value()) return false;
  const auto& fit = std::get<FitStage>(stages[until->stage]);
  if (fit.epochs == 0 || fit.validate_every == 0) return false;
  const Passes passes(timeline, until->begin);
  const int64_t before = passes.Complete(newest.position);
  return passes.Complete(newest.pace.Begin(newest.position)) / fit.validate_every >
         before / fit.validate_every;
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

int64_t ScheduledSteps(const std::vector<PlannedStage>& stages) {
  int64_t steps = 0;
  for (const PlannedStage& stage : stages) {
    if (const auto* fit = std::get_if<FitUntil>(&stage.what)) steps += fit->full;
  }
  return steps;
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
  due.validate = rules.stage.validate.Has(step);
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
