#include "common/jobspec/validate_optimizer.h"

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/jobspec.h"

namespace muster::jobspec {
namespace {

// The loss scaler counts good steps in float32, which is exact up to here.
constexpr uint32_t kMaxGrowthInterval = 1 << 24;

std::string Found(double value, const std::string& allowed) {
  return absl::StrCat("found ", value, "; allowed: ", allowed);
}

// Comparisons are written so that NaN fails too.
class Rules {
 public:
  explicit Rules(ProblemList* problems) : problems_(problems) {}

  void Above0(const std::string& path, double value) {
    if (!(value > 0)) Add(path, Found(value, "a number above 0"));
  }
  // Required, without presence.
  void Rate(const std::string& path, double value) {
    if (value == 0) return Add(path, "is missing or 0; allowed: a number above 0");
    Above0(path, value);
  }
  void AtLeast0(const std::string& path, double value) {
    if (!(value >= 0)) Add(path, Found(value, "0 or more"));
  }
  void AtLeast1(const std::string& path, double value) {
    if (!(value >= 1)) Add(path, Found(value, "1 or more"));
  }
  void Probability(const std::string& path, double value) {
    if (!(value >= 0 && value < 1)) Add(path, Found(value, "from 0 to below 1"));
  }
  void Inside01(const std::string& path, double value) {
    if (!(value > 0 && value < 1)) Add(path, Found(value, "above 0 and below 1"));
  }
  void Ratio(const std::string& path, double value) {
    if (!(value >= 0 && value <= 1)) Add(path, Found(value, "0 to 1"));
  }
  void Add(const std::string& path, const std::string& message) { problems_->Add(path, message); }

 private:
  ProblemList* const problems_;
};

void Groups(const v1::OptimizerSpec& optimizer, Rules rules) {
  for (int i = 0; i < optimizer.groups_size(); ++i) {
    const v1::ParameterGroup& group = optimizer.groups(i);
    const std::string path = ElementPath("optimizer.groups", i);
    if (group.match().empty()) {
      rules.Add(path + ".match", "is missing; allowed: a pattern over parameter names, such as \"*bias\"");
    }
    if (!group.has_weight_decay() && !group.has_lr_scale()) {
      rules.Add(path, "sets nothing; allowed: weight_decay, lr_scale, or both");
    }
    if (group.has_weight_decay()) rules.AtLeast0(path + ".weight_decay", group.weight_decay());
    if (group.has_lr_scale()) rules.AtLeast0(path + ".lr_scale", group.lr_scale());
  }
}

class ScheduleRules {
 public:
  ScheduleRules(uint64_t fit_steps, Rules rules) : fit_steps_(fit_steps), rules_(rules) {}

  // A schedule that ends at total_steps.
  template <typename Schedule>
  void Total(const std::string& path, const Schedule& schedule) {
    if (schedule.has_total_steps() && schedule.total_steps() == 0) {
      rules_.Add(path + ".total_steps",
                 absl::StrCat("is missing or 0; allowed: 1 to ", std::numeric_limits<uint32_t>::max()));
    }
  }

  template <typename Schedule>
  void WarmupWithinTotal(const std::string& path, const Schedule& schedule) {
    Total(path, schedule);
    if (!schedule.has_total_steps()) {
      WarmupWithinStages(path, schedule, ", unless total_steps says more");
    } else if (schedule.total_steps() > 0 && schedule.warmup_steps() > schedule.total_steps()) {
      rules_.Add(path + ".warmup_steps",
                 absl::StrCat("found ", schedule.warmup_steps(), "; allowed: at most total_steps, ",
                              schedule.total_steps()));
    }
  }

  template <typename Schedule>
  void WarmupWithinStages(const std::string& path, const Schedule& schedule, const char* unless = "") {
    if (fit_steps_ == 0 || schedule.warmup_steps() <= fit_steps_) return;
    rules_.Add(path + ".warmup_steps",
               absl::StrCat("found ", schedule.warmup_steps(),
                            "; allowed: at most the steps of all fit stages, ", fit_steps_, unless));
  }

  void OneCycle(const std::string& path, const v1::OneCycleSchedule& cycle) {
    Total(path, cycle);
    const double pct_start = cycle.has_pct_start() ? cycle.pct_start() : 0.3;
    const double div = cycle.has_div_factor() ? cycle.div_factor() : 25;
    const double final_div = cycle.has_final_div_factor() ? cycle.final_div_factor() : 1e4;
    rules_.Inside01(path + ".pct_start", pct_start);
    if (cycle.three_phase() && pct_start > 0.5 && pct_start < 1) {
      rules_.Add(path + ".pct_start",
                 Found(pct_start, "at most 0.5 with three_phase, which falls as long as it rises"));
    }
    rules_.AtLeast1(path + ".div_factor", div);
    // Written so that NaN fails too.
    if (div >= 1 && !(div * final_div >= 1)) {
      rules_.Add(path + ".final_div_factor",
                 Found(final_div, "1 / div_factor or more, so that lr is the highest rate"));
    }
  }

 private:
  const uint64_t fit_steps_;
  Rules rules_;
};

}  // namespace

void ValidateOptimizer(const v1::JobSpec& spec, ProblemList* problems) {
  Rules rules(problems);
  if (spec.optimizer().has_adamw()) {
    const v1::AdamwSpec& adamw = spec.optimizer().adamw();
    rules.Rate("optimizer.adamw.lr", adamw.lr());
    if (adamw.betas_size() != 0 && adamw.betas_size() != 2) {
      rules.Add("optimizer.adamw.betas", absl::StrCat("found ", adamw.betas_size(),
                                                      "; allowed: 2 numbers, such as [0.9, 0.999]"));
    }
    for (int i = 0; i < adamw.betas_size(); ++i) {
      rules.Probability(ElementPath("optimizer.adamw.betas", i), adamw.betas(i));
    }
    if (adamw.has_eps()) rules.Above0("optimizer.adamw.eps", adamw.eps());
    rules.AtLeast0("optimizer.adamw.weight_decay", adamw.weight_decay());
  } else if (spec.optimizer().has_sgd()) {
    const v1::SgdSpec& sgd = spec.optimizer().sgd();
    rules.Rate("optimizer.sgd.lr", sgd.lr());
    rules.Probability("optimizer.sgd.momentum", sgd.momentum());
    rules.AtLeast0("optimizer.sgd.weight_decay", sgd.weight_decay());
    if (sgd.nesterov() && sgd.momentum() == 0) {
      rules.Add("optimizer.sgd.nesterov", "found true, but momentum is 0; allowed: with momentum above 0");
    }
  }
  Groups(spec.optimizer(), rules);
}

void ValidateSchedule(const v1::JobSpec& spec, ProblemList* problems) {
  Rules rules(problems);
  ScheduleRules schedules(TotalSteps(spec), rules);
  const v1::ScheduleSpec& schedule = spec.schedule();
  switch (schedule.kind_case()) {
    case v1::ScheduleSpec::kConstant:
      schedules.WarmupWithinStages("schedule.constant", schedule.constant());
      break;
    case v1::ScheduleSpec::kWarmupCosine:
      schedules.WarmupWithinTotal("schedule.warmup_cosine", schedule.warmup_cosine());
      rules.Ratio("schedule.warmup_cosine.min_ratio", schedule.warmup_cosine().min_ratio());
      break;
    case v1::ScheduleSpec::kLinear:
      schedules.WarmupWithinTotal("schedule.linear", schedule.linear());
      rules.Ratio("schedule.linear.min_ratio", schedule.linear().min_ratio());
      break;
    case v1::ScheduleSpec::kStep:
      schedules.WarmupWithinStages("schedule.step", schedule.step());
      if (schedule.step().step_size() == 0) {
        rules.Add("schedule.step.step_size",
                  absl::StrCat("is missing or 0; allowed: 1 to ", std::numeric_limits<uint32_t>::max()));
      }
      if (schedule.step().has_gamma()) rules.Above0("schedule.step.gamma", schedule.step().gamma());
      break;
    case v1::ScheduleSpec::kOneCycle:
      schedules.OneCycle("schedule.one_cycle", schedule.one_cycle());
      break;
    case v1::ScheduleSpec::KIND_NOT_SET:
      break;
  }
}

void ValidatePrecision(const v1::JobSpec& spec, ProblemList* problems) {
  if (!spec.has_loss_scale()) return;
  Rules rules(problems);
  if (spec.precision() != v1::JobSpec::FLOAT16) {
    rules.Add("loss_scale", "is given, but only precision float16 uses it; allowed: leave it out");
    return;
  }
  const v1::LossScaleSpec& scale = spec.loss_scale();
  if (scale.has_initial() &&
      !(scale.initial() > 0 && scale.initial() <= std::numeric_limits<float>::max())) {
    rules.Add("loss_scale.initial",
              Found(scale.initial(), absl::StrCat("a number above 0, at most ",
                                                  std::numeric_limits<float>::max())));
  }
  if (scale.has_growth_factor() && !(scale.growth_factor() > 1)) {
    rules.Add("loss_scale.growth_factor", Found(scale.growth_factor(), "a number above 1"));
  }
  if (scale.has_backoff_factor()) {
    rules.Inside01("loss_scale.backoff_factor", scale.backoff_factor());
  }
  if (scale.has_growth_interval() &&
      !(scale.growth_interval() >= 1 && scale.growth_interval() <= kMaxGrowthInterval)) {
    rules.Add("loss_scale.growth_interval",
              absl::StrCat("found ", scale.growth_interval(), "; allowed: 1 to ", kMaxGrowthInterval));
  }
}

}  // namespace muster::jobspec
