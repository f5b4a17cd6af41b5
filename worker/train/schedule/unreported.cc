#include "worker/train/schedule/unreported.h"

#include <algorithm>
#include <set>

#include "common/commands/command_rule.h"

namespace muster::train {

std::vector<Unreported> FindUnreported(const CommandSchedule::Position& position, int64_t step,
                                       const std::map<int64_t, int64_t>& steps, int64_t newest,
                                       const CommandSchedule::Get& get) {
  newest = std::min(newest, position.taken);
  std::set<int64_t> cancelled;
  for (int64_t number = 1; number <= newest; ++number) {
    const Command command = get(number);
    const auto target = static_cast<int64_t>(command.cancel().target());
    if (command.has_cancel() && !steps.contains(target)) cancelled.insert(target);
  }
  std::vector<Unreported> result;
  for (int64_t number = 1; number <= newest; ++number) {
    const Command command = get(number);
    const auto applied = steps.find(number);
    const int64_t at = applied == steps.end() ? step : applied->second;
    if (commands::IsOver(command)) {
      if (applied != steps.end()) result.push_back({number, Unreported::What::kApplied, at});
      continue;
    }
    const bool waits = std::binary_search(position.waiting.begin(), position.waiting.end(), number);
    if (command.replay() || command.begun() || waits || IsDoneOnce(command)) continue;
    if (cancelled.contains(number)) {
      result.push_back({.number = number, .what = Unreported::What::kCancelled});
    } else {
      result.push_back({number, Unreported::What::kFinished, at});
    }
  }
  return result;
}

}  // namespace muster::train
