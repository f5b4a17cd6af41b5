#include "worker/train/rollcall/calls.h"

#include <variant>

#include "common/status/status.h"

namespace muster::train {

absl::StatusOr<RollCallPlan> Calls::CallNow() {
  RETURN_IF_ERROR(parts_.background->failure());
  return parts_.roll_call->CallNow();
}

absl::StatusOr<bool> Calls::AskedToEnd() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  return plan.preempted || StopsNow(plan);
}

absl::StatusOr<bool> Calls::PassMustEnd() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  return (plan.preempted && parts_.has_checkpoints) || StopsNow(plan);
}

bool Calls::StopsNow(const RollCallPlan& plan) const {
  const int64_t first = parts_.schedule->position().taken + 1;
  for (int64_t number = first; number <= plan.apply_commands; ++number) {
    const Command command = parts_.commands->Get(number);
    const bool now = static_cast<int64_t>(command.at_step()) <= parts_.session_state->step;
    if (now && command.has_stop()) return true;
  }
  return false;
}

}  // namespace muster::train
