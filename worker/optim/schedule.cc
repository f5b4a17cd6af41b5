#include "worker/optim/schedule.h"

#include <cmath>
#include <numbers>

namespace muster::optim {
namespace {

double Factor(const Constant&, int64_t) { return 1.0; }

double Factor(const WarmupCosine& schedule, int64_t step) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return static_cast<double>(step + 1) / warmup;
  if (step >= schedule.total_steps) return schedule.min_ratio;
  const double progress = static_cast<double>(step - warmup) / (schedule.total_steps - warmup);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return schedule.min_ratio + (1.0 - schedule.min_ratio) * cosine;
}

}  // namespace

double LearningRateFactor(const Schedule& schedule, int64_t step) {
  return std::visit([step](const auto& s) { return Factor(s, step); }, schedule);
}

}  // namespace muster::optim
