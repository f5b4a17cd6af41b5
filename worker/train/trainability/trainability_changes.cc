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

TrainabilityChanges::TrainabilityChanges(const Parts& parts)
    : parts_(parts),
      hook_(parts.model->step_hook()),
      idle_({.model = parts.model->name(),
             .kind = hook_,
             .gathers = hook_ == models::HookKind::kValues &&
                        parts.training->strategy().store().shards() != nullptr,
             .calls = parts.refresh == RefreshMode::kAuto}) {}

absl::StatusOr<std::optional<RollCallPlan>> TrainabilityChanges::BeforeStep() {
  const bool hook = hook_ != models::HookKind::kNone;
  const bool manual = parts_.refresh == RefreshMode::kManual;
  const auto start = Clock::now();
  bool wrote = false;
  if (hook) {
    if (manual) parts_.trained->ShowPending();
    ASSIGN_OR_RETURN(wrote, RunHook());
  }
  bool changed = false;
  std::optional<RollCallPlan> plan;
  if (manual) {
    changed = parts_.trained->HoldBack(/*shown=*/hook);
    if (changed) Report(std::nullopt);
  } else {
    changed = parts_.trained->FirstFlipped() >= 0;
    if (changed) {
      ASSIGN_OR_RETURN(const TrainabilityChange change, BringIntoForce(parts_.trained->Flags(), 0));
      Report(change);
    }
    // Also where the hook changed no flag on this rank, because it may have changed one on another
    // rank: the ranks compare their flags before anything depends on them.
    if (hook || changed) {
      ASSIGN_OR_RETURN(plan, parts_.calls->CallNow());
    }
  }
  if (hook) {
    const auto idle = idle_.Called(changed || wrote, SecondsSince(start));
    if (idle.has_value() && parts_.reports->leader()) spdlog::warn("{}", *idle);
  }
  return plan;
}

absl::StatusOr<bool> TrainabilityChanges::RunHook() {
  const bool values = hook_ == models::HookKind::kValues;
  if (values) {
    std::vector<size_t> all(parts_.trained->parameters().size());
    std::iota(all.begin(), all.end(), 0);
    RETURN_IF_ERROR(parts_.training->strategy().AwaitParameters());
    RETURN_IF_ERROR(parts_.training->strategy().store().Gather(all));
  }
  bool wrote = false;
  {
    std::optional<models::ValueWatch> watch;
    if (values && !idle_.told()) watch.emplace(*parts_.model, models::ValueWatch::Mode::kNote);
    RETURN_IF_ERROR(Annotate(
        parts_.model->BeforeStep(parts_.session_state->step + 1),
        absl::StrCat("rank ", parts_.rank, ", before step ", parts_.session_state->step + 1)));
    wrote = watch.has_value() && watch->written();
  }
  if (values) parts_.training->strategy().store().Release();
  return wrote;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::BringIntoForce(const Mask& mask,
                                                                       int64_t command) {
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(mask, command));
  parts_.trained->NameByParameters();
  change.version = parts_.trained->version();
  return change;
}

TrainabilityChange TrainabilityChanges::Difference(const Mask& mask, int64_t command) const {
  const Mask& before = parts_.trained->in_force();
  const auto& parameters = parts_.trained->parameters();
  TrainabilityChange change{.step = parts_.session_state->step,
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
  parts_.trained->Want(mask);
  if (parts_.trained->first_change() < 0) return change;
  const auto start = Clock::now();
  parts_.reports->Progress("planning anew what is trained");
  // The ranks compare the masks that they want before anything depends on them.
  RETURN_IF_ERROR(parts_.calls->CallNow().status());
  ASSIGN_OR_RETURN(change.bytes_moved, parts_.training->Refresh(parts_.session_state->step));
  change.seconds = SecondsSince(start);
  return change;
}

absl::StatusOr<TrainabilityPlan> TrainabilityChanges::Foresee(
    const std::vector<TrainableRule>& rules, int64_t command) const {
  ASSIGN_OR_RETURN(const Mask mask, parts_.trained->With(rules));
  ASSIGN_OR_RETURN(const Training::Foresight foresight, parts_.training->Foresee(mask));
  TrainabilityPlan plan{.change = Difference(mask, command), .ranks = {}};
  plan.change.version = parts_.trained->version() + 1;
  plan.change.bytes_moved = foresight.bytes_moved;
  for (size_t rank = 0; rank < foresight.bytes_after.size(); ++rank) {
    plan.ranks.push_back({foresight.bytes_before[rank], foresight.bytes_after[rank]});
  }
  return plan;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::Add(const std::vector<TrainableRule>& rules,
                                                            int64_t command) {
  ASSIGN_OR_RETURN(const Mask mask, parts_.trained->With(rules));
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(mask, command));
  RETURN_IF_ERROR(parts_.trained->Add(rules));
  change.version = parts_.trained->version();
  Report(change);
  return change;
}

absl::StatusOr<TrainabilityChange> TrainabilityChanges::BringPendingIntoForce(int64_t command) {
  ASSIGN_OR_RETURN(TrainabilityChange change,
                   BringIntoForce(parts_.trained->TakePending(), command));
  if (!change.frozen.empty() || !change.unfrozen.empty()) Report(change);
  return change;
}

void TrainabilityChanges::Report(const std::optional<TrainabilityChange>& change) {
  const auto& parameters = parts_.trained->parameters();
  TrainabilityReport in_force{.version = parts_.trained->version(),
                              .rules = parts_.trained->rules(),
                              .trained = TrainedElements(parameters, parts_.trained->in_force()),
                              .change = change};
  for (const auto& parameter : parameters) in_force.frozen += parameter.elements;
  in_force.frozen -= in_force.trained;
  in_force.pending = parts_.trained->PendingNames();
  if (!std::exchange(described_, true)) in_force.parameters = parameters;
  parts_.reports->Report(in_force);
}

}  // namespace muster::train
