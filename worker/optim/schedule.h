// Learning-rate schedules: pure functions of the step. docs/reference/optimizers.md has the
// formulas.
//
// Step s (from 0) of a warm-up of W steps has (s + 1) / W of the rate, in every schedule with a
// warm-up. The descriptions below count from the first step after the warm-up.
#ifndef MUSTER_WORKER_OPTIM_SCHEDULE_H_
#define MUSTER_WORKER_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <variant>

namespace muster::optim {

struct Constant {
  int64_t warmup_steps = 0;
};

// A half cosine from 1 to min_ratio over total_steps - warmup_steps steps, then min_ratio (torch's
// CosineAnnealingLR up to T_max).
struct WarmupCosine {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double min_ratio = 0.0;
};

// A straight line from 1 to min_ratio over total_steps - warmup_steps steps, then min_ratio
// (LinearLR).
struct Linear {
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double min_ratio = 0.0;
};

// A factor that is multiplied by gamma after every step_size steps (StepLR).
struct StepDecay {
  int64_t warmup_steps = 0;
  int64_t step_size = 1;
  double gamma = 0.1;
};

// A rise from 1 / div_factor to 1 over the first pct_start of the steps, and a fall to 1 /
// div_factor / final_div_factor at the last step. The last value holds for all later steps. With
// three phases, the factor first falls to 1 / div_factor in as many steps as it rose, and then to
// the last value (OneCycleLR).
struct OneCycle {
  enum class Anneal { kCosine, kLinear };
  int64_t total_steps = 1;
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  Anneal anneal = Anneal::kCosine;
  bool three_phase = false;
};

using Schedule = std::variant<Constant, WarmupCosine, Linear, StepDecay, OneCycle>;

// Sets the end of a schedule that ends at some step, and whose total_steps is 0.
void EndAt(int64_t total_steps, Schedule* schedule);

// The factor on the base learning rate in step `step` (from 0).
double LearningRateFactor(const Schedule& schedule, int64_t step);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_SCHEDULE_H_
