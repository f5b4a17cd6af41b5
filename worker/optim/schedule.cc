#include "worker/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace muster::optim {
namespace {

double WarmupFactor(int64_t warmup, int64_t step) { return static_cast<double>(step + 1) / warmup; }

// The value between `start` and `end` on a half cosine, as `progress` goes from 0 to 1.
double CosineBetween(double start, double end, double progress) {
  return end + (start - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}
double LineBetween(double start, double end, double progress) {
  return start + (end - start) * progress;
}

double Factor(const Constant& schedule, int64_t step) {
  return step < schedule.warmup_steps ? WarmupFactor(schedule.warmup_steps, step) : 1.0;
}

template <typename FromWarmupToTotal>
double Descent(const FromWarmupToTotal& schedule, int64_t step,
               double (*between)(double, double, double)) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return WarmupFactor(warmup, step);
  if (step >= schedule.total_steps) return schedule.min_ratio;
  const double progress = static_cast<double>(step - warmup) / (schedule.total_steps - warmup);
  return between(1.0, schedule.min_ratio, progress);
}

double Factor(const WarmupCosine& schedule, int64_t step) {
  return Descent(schedule, step, CosineBetween);
}

double Factor(const Linear& schedule, int64_t step) { return Descent(schedule, step, LineBetween); }

double Factor(const StepDecay& schedule, int64_t step) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return WarmupFactor(warmup, step);
  return std::pow(schedule.gamma, static_cast<double>((step - warmup) / schedule.step_size));
}

double Factor(const OneCycle& schedule, int64_t step) {
  const double first = 1.0 / schedule.div_factor;
  const double last = first / schedule.final_div_factor;
  const double total = static_cast<double>(schedule.total_steps);
  const double rise_end = schedule.pct_start * total - 1;
  struct Phase {
    double end_step, start, end;
  };
  const std::vector<Phase> phases =
      schedule.three_phase ? std::vector<Phase>{{rise_end, first, 1.0},
                                                {2 * rise_end, 1.0, first},
                                                {total - 1, first, last}}
                           : std::vector<Phase>{{rise_end, first, 1.0}, {total - 1, 1.0, last}};
  const double at = static_cast<double>(std::min(step, schedule.total_steps - 1));
  const auto between = schedule.anneal == OneCycle::Anneal::kCosine ? CosineBetween : LineBetween;
  size_t i = 0;
  double begin = 0;
  while (i + 1 < phases.size() && at > phases[i].end_step) begin = phases[i++].end_step;
  const double length = phases[i].end_step - begin;
  // A phase of length 0 gives its start.
  return between(phases[i].start, phases[i].end, length == 0 ? 0.0 : (at - begin) / length);
}

}  // namespace

void EndAt(int64_t total_steps, Schedule* schedule) {
  std::visit(
      [total_steps](auto& s) {
        if constexpr (requires { s.total_steps; }) {
          if (s.total_steps == 0) s.total_steps = total_steps;
        }
      },
      *schedule);
}

double LearningRateFactor(const Schedule& schedule, int64_t step) {
  return std::visit([step](const auto& s) { return Factor(s, step); }, schedule);
}

}  // namespace muster::optim
