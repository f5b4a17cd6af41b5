#include "worker/train/trainability/trainability_changes.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status.h"
#include "worker/models/value_watch.h"

namespace muster::train {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::optional<std::string> IdleHook::Called(bool changed, double seconds) {
  if (told_) return std::nullopt;
  idle_ = changed ? 0 : idle_ + 1;
  seconds_ = changed ? 0 : seconds_ + seconds;
  if (idle_ < kSteps) return std::nullopt;
  told_ = true;
  std::string why;
  if (options_.gathers) absl::StrAppend(&why, "all parameters are gathered for it");
  if (options_.calls) {
    absl::StrAppend(&why, why.empty() ? "" : ", and ", "the ranks hold a roll call after it");
  }
  const char* flags = options_.kind == models::HookKind::kValues
                          ? "; a model whose hook only freezes and unfreezes parameters should be "
                            "a FlagHook"
                          : "";
  return absl::StrFormat(
      "the step hook of %s changed nothing in the last %d steps (writes through raw pointers are "
      "not seen), and cost %.3f ms in each step%s%s; a model that needs no hook should not be a "
      "StepHook%s (docs/how-to/plugins.md)",
      options_.model, kSteps, 1e3 * seconds_ / kSteps, why.empty() ? "" : ", because ", why, flags);
}

TrainabilityChanges::TrainabilityChanges(const Dependencies& deps)
    : deps_(deps),
      hook_(deps.model->step_hook()),
      idle_({.model = deps.model->name(),
             .kind = hook_,
             .gathers = hook_ == models::HookKind::kValues &&
                        deps.training->strategy().store().shards() != nullptr,
             .calls = deps.refresh == RefreshMode::kAuto}) {}

absl::StatusOr<std::optional<RollCallPlan>> TrainabilityChanges::BeforeStep() {
  const bool hook = hook_ != models::HookKind::kNone;
  const bool manual = deps_.refresh == RefreshMode::kManual;
  const auto start = Clock::now();
  bool wrote = false;
  if (hook) {
    if (manual) deps_.trained->ShowPending();
    ASSIGN_OR_RETURN(wrote, RunHook());
  }
  bool changed = false;
  std::optional<RollCallPlan> plan;
  if (manual) {
    changed = deps_.trained->HoldBack(/*shown=*/hook);
    if (changed) Report(std::nullopt);
  } else {
    changed = deps_.trained->FirstFlipped() >= 0;
    if (changed) {
      ASSIGN_OR_RETURN(const TrainabilityChange change, BringIntoForce(deps_.trained->Flags(), 0));
      Report(change);
    }
    // A hook needs a roll call even without a change on this rank. The hook may have changed a flag
    // on another rank, and the ranks must compare their flags first.
    if (hook || changed) {
      ASSIGN_OR_RETURN(plan, deps_.calls->CallNow());
    }
  }
  if (hook) {
    const auto idle = idle_.Called(changed || wrote, SecondsSince(start));
    if (idle.has_value() && deps_.reports->leader()) spdlog::warn("{}", *idle);
  }
  return plan;
}

absl::StatusOr<bool> TrainabilityChanges::RunHook() {
  const bool values = hook_ == models::HookKind::kValues;
  if (values) {
    std::vector<size_t> all(deps_.trained->parameters().size());
    std::iota(all.begin(), all.end(), 0);
    RETURN_IF_ERROR(deps_.training->strategy().AwaitParameters());
    RETURN_IF_ERROR(deps_.training->strategy().store().Gather(all));
  }
  bool wrote = false;
  {
    std::optional<models::ValueWatch> watch;
    if (values && !idle_.told()) watch.emplace(*deps_.model, models::ValueWatch::Mode::kNote);
    RETURN_IF_ERROR(Annotate(
        deps_.model->BeforeStep(deps_.session_state->step + 1),
        absl::StrCat("rank ", deps_.rank, ", before step ", deps_.session_state->step + 1)));
    wrote = watch.has_value() && watch->written();
  }
  if (values) deps_.training->strategy().store().Release();
  return wrote;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::BringIntoForce(const Mask& mask,
                                                                       int64_t command) {
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(mask, command));
  deps_.trained->NameByParameters();
  change.version = deps_.trained->version();
  return change;
}

TrainabilityChange TrainabilityChanges::Difference(const Mask& mask, int64_t command) const {
  const Mask& before = deps_.trained->in_force();
  const auto& parameters = deps_.trained->parameters();
  TrainabilityChange change{.step = deps_.session_state->step,
                            .command = command,
                            .trained_before = TrainedElements(parameters, before),
                            .trained = TrainedElements(parameters, mask)};
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == before[i]) continue;
    (mask[i] ? change.unfrozen : change.frozen).push_back(parameters[i].name);
  }
  return change;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::ChangeTo(const Mask& mask,
                                                                 int64_t command) {
  TrainabilityChange change = Difference(mask, command);
  deps_.trained->Want(mask);
  if (deps_.trained->first_change() < 0) return change;
  const auto start = Clock::now();
  deps_.reports->Progress("planning anew what is trained");
  // The ranks compare the masks that they want, before anything uses the masks.
  RETURN_IF_ERROR(deps_.calls->CallNow().status());
  ASSIGN_OR_RETURN(change.bytes_moved, deps_.training->Refresh(deps_.session_state->step));
  change.seconds = SecondsSince(start);
  return change;
}

absl::StatusOr<TrainabilityPlan> TrainabilityChanges::Estimate(
    const std::vector<TrainableRule>& rules, int64_t command) const {
  ASSIGN_OR_RETURN(const Mask mask, deps_.trained->With(rules));
  ASSIGN_OR_RETURN(const Training::RefreshEstimate estimate, deps_.training->Estimate(mask));
  TrainabilityPlan plan{.change = Difference(mask, command), .ranks = {}};
  plan.change.version = deps_.trained->version() + 1;
  plan.change.bytes_moved = estimate.bytes_moved;
  for (size_t rank = 0; rank < estimate.bytes_after.size(); ++rank) {
    plan.ranks.push_back({estimate.bytes_before[rank], estimate.bytes_after[rank]});
  }
  return plan;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::Add(const std::vector<TrainableRule>& rules,
                                                            int64_t command) {
  ASSIGN_OR_RETURN(const Mask mask, deps_.trained->With(rules));
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(mask, command));
  RETURN_IF_ERROR(deps_.trained->Add(rules));
  change.version = deps_.trained->version();
  Report(change);
  return change;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::BringPendingIntoForce(int64_t command) {
  ASSIGN_OR_RETURN(TrainabilityChange change,
                   BringIntoForce(deps_.trained->TakePending(), command));
  if (!change.frozen.empty() || !change.unfrozen.empty()) Report(change);
  return change;
}

void TrainabilityChanges::Report(const std::optional<TrainabilityChange>& change) {
  const auto& parameters = deps_.trained->parameters();
  TrainabilityReport in_force{.version = deps_.trained->version(),
                              .rules = deps_.trained->rules(),
                              .trained = TrainedElements(parameters, deps_.trained->in_force()),
                              .change = change};
  for (const auto& parameter : parameters) in_force.frozen += parameter.elements;
  in_force.frozen -= in_force.trained;
  in_force.pending = deps_.trained->PendingNames();
  if (!std::exchange(described_, true)) in_force.parameters = parameters;
  deps_.reports->Report(in_force);
}

}  // namespace muster::train
