// Learning-rate schedules: pure functions of the step.
#ifndef MUSTER_WORKER_OPTIM_SCHEDULE_H_
#define MUSTER_WORKER_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <variant>

namespace muster::optim {

struct Constant {};

// Step s (from 0) of warmup_steps W has (s + 1) / W of the rate; then a half cosine from 1 to
// min_ratio over total_steps - W steps, and min_ratio for ever after.
struct WarmupCosine {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double min_ratio = 0.0;
};

using Schedule = std::variant<Constant, WarmupCosine>;

// The factor on the base learning rate in step `step` (from 0).
double LearningRateFactor(const Schedule& schedule, int64_t step);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_SCHEDULE_H_
