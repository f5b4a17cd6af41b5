#include "worker/train/trainability/idle_hook.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster::train {

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
      "StepHook%s (docs/plugins.md)",
      options_.model, kSteps, 1e3 * seconds_ / kSteps, why.empty() ? "" : ", because ", why, flags);
}

}  // namespace muster::train
