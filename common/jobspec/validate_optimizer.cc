#include <google/protobuf/message.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"
#include "common/jobspec/validate.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Found(double value, const std::string& allowed) {
  return absl::StrCat("found ", value, "; allowed: ", allowed);
}

// Requires a warm-up within the steps of all fit stages; 0: there are none, or they are not known.
template <typename Schedule>
void WarmupWithinStages(const std::string& path, const Schedule& schedule, uint64_t fit_steps,
                        ProblemList* problems, const char* unless = "") {
  if (fit_steps == 0 || schedule.warmup_steps() <= fit_steps) return;
  problems->Add(
      path + ".warmup_steps",
      absl::StrCat("found ", schedule.warmup_steps(),
                   "; allowed: at most the steps of all fit stages, ", fit_steps, unless));
}

// Requires the same of a schedule that ends at total_steps.
template <typename Schedule>
void WarmupWithinTotal(const std::string& path, const Schedule& schedule, uint64_t fit_steps,
                       ProblemList* problems) {
  if (!schedule.has_total_steps()) {
    WarmupWithinStages(path, schedule, fit_steps, problems, ", unless total_steps says more");
  } else if (schedule.total_steps() > 0 && schedule.warmup_steps() > schedule.total_steps()) {
    problems->Add(path + ".warmup_steps",
                  absl::StrCat("found ", schedule.warmup_steps(),
                               "; allowed: at most total_steps, ", schedule.total_steps()));
  }
}

// `cycle` has its defaults.
void OneCycle(const std::string& path, const v1::OneCycleSchedule& cycle, ProblemList* problems) {
  if (cycle.three_phase() && cycle.pct_start() > 0.5) {
    problems->Add(
        path + ".pct_start",
        Found(cycle.pct_start(),
              "at most 0.5 with three_phase, because the rate falls for as long as it rises"));
  }
  // NaN fails, too, by the form of the comparison.
  if (cycle.div_factor() >= 1 && !(cycle.div_factor() * cycle.final_div_factor() >= 1)) {
    problems->Add(
        path + ".final_div_factor",
        Found(cycle.final_div_factor(), "1 / div_factor or more, so that lr is the highest rate"));
  }
}

void Sgd(const std::string& path, const v1::SgdSpec& sgd, ProblemList* problems) {
  if (!sgd.nesterov() || sgd.momentum() > 0) return;
  problems->Add(path + ".nesterov",
                "found true, but momentum is 0; allowed: with momentum above 0");
}

// The optimizer in the oneof of a message; null: none.
const Message* Chosen(const Message& message) {
  const auto* const field = message.GetReflection()->GetOneofFieldDescriptor(
      message, message.GetDescriptor()->oneof_decl(0));
  return field == nullptr ? nullptr : &message.GetReflection()->GetMessage(message, field);
}

// `possible`: the optimizers that parameters may have before this group. The group's own optimizer
// is added.
void Group(const std::string& path, const v1::ParameterGroup& group,
           std::vector<const Message*>* possible, ProblemList* problems) {
  std::vector<const FieldDescriptor*> given;
  group.GetReflection()->ListFields(group, &given);
  std::vector<const FieldDescriptor*> settings;  // settings of the optimizer
  for (const FieldDescriptor* field : given) {
    if (field->number() == v1::ParameterGroup::kMatchFieldNumber ||
        field->number() == v1::ParameterGroup::kLrScaleFieldNumber ||
        field->number() == v1::ParameterGroup::kOptimizerFieldNumber) {
      continue;
    }
    settings.push_back(field);
  }
  if (settings.empty() && !group.has_lr_scale() && !group.has_optimizer()) {
    problems->Add(path,
                  "sets nothing; allowed: one or more of weight_decay, lr_scale, lr, betas, eps, "
                  "momentum, or optimizer");
  }
  if (group.has_optimizer()) {
    for (const FieldDescriptor* field : settings) {
      problems->Add(ChildPath(path, field->name()),
                    "is set beside optimizer; allowed: as a setting of that optimizer, or in a "
                    "later group");
    }
    Sgd(path + ".optimizer.sgd", group.optimizer().sgd(), problems);
    if (const Message* chosen = Chosen(group.optimizer()); chosen != nullptr) {
      possible->push_back(chosen);
    }
    return;
  }
  for (const FieldDescriptor* field : settings) {
    const auto has = [field](const Message* optimizer) {
      return optimizer->GetDescriptor()->FindFieldByName(field->name()) != nullptr;
    };
    if (possible->empty() || std::any_of(possible->begin(), possible->end(), has)) continue;
    problems->Add(ChildPath(path, field->name()),
                  "no optimizer that is chosen before this group has it; allowed: settings of the "
                  "job's optimizer, or of an optimizer of an earlier group");
  }
}

}  // namespace

void ValidateOptimizer(const v1::JobSpec& spec, ProblemList* problems) {
  Sgd("optimizer.sgd", spec.optimizer().sgd(), problems);
  std::vector<const Message*> possible;
  if (const Message* chosen = Chosen(spec.optimizer()); chosen != nullptr) {
    possible.push_back(chosen);
  }
  for (int i = 0; i < spec.optimizer().groups_size(); ++i) {
    Group(ElementPath("optimizer.groups", i), spec.optimizer().groups(i), &possible, problems);
  }
}

void ValidateSchedule(const v1::JobSpec& spec, uint64_t fit_steps, ProblemList* problems) {
  const v1::ScheduleSpec& schedule = spec.schedule();
  switch (schedule.kind_case()) {
    case v1::ScheduleSpec::kConstant:
      return WarmupWithinStages("schedule.constant", schedule.constant(), fit_steps, problems);
    case v1::ScheduleSpec::kWarmupCosine:
      return WarmupWithinTotal("schedule.warmup_cosine", schedule.warmup_cosine(), fit_steps,
                               problems);
    case v1::ScheduleSpec::kLinear:
      return WarmupWithinTotal("schedule.linear", schedule.linear(), fit_steps, problems);
    case v1::ScheduleSpec::kStep:
      return WarmupWithinStages("schedule.step", schedule.step(), fit_steps, problems);
    case v1::ScheduleSpec::kOneCycle: {
      v1::OneCycleSchedule cycle = schedule.one_cycle();
      FillDefaults(&cycle);
      return OneCycle("schedule.one_cycle", cycle, problems);
    }
    case v1::ScheduleSpec::KIND_NOT_SET:
      return;
  }
}

void ValidatePrecision(const v1::JobSpec& spec, ProblemList* problems) {
  if (spec.precision() == v1::JobSpec::FLOAT16 &&
      spec.strategy().fsdp().param_dtype() == v1::FsdpSpec::BFLOAT16) {
    problems->Add("strategy.fsdp.param_dtype",
                  "found bfloat16 with precision float16, but units cannot compute in both; "
                  "allowed: float32, or another precision");
  }
  if (!spec.has_loss_scale() || spec.precision() == v1::JobSpec::FLOAT16) return;
  problems->Add("loss_scale",
                "is given, but only precision float16 uses it; allowed: leave it out");
}

}  // namespace muster::jobspec
