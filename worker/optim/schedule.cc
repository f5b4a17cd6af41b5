#include "worker/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace muster::optim {
namespace {

double Factor(const Constant&, int64_t) { return 1.0; }

double Factor(const WarmupCosine& cosine, int64_t step) {
  if (step < cosine.warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(cosine.warmup_steps);
  }
  const int64_t length = cosine.total_steps - cosine.warmup_steps;
  if (length <= 0) return cosine.min_ratio;
  const double progress = std::min(
      1.0, static_cast<double>(step - cosine.warmup_steps) / static_cast<double>(length));
  return cosine.min_ratio +
         (1.0 - cosine.min_ratio) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace

double LearningRateFactor(const Schedule& schedule, int64_t step) {
  return std::visit([step](const auto& kind) { return Factor(kind, step); }, schedule);
}

}  // namespace muster::optim
