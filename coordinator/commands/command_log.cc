#include "coordinator/commands/command_log.h"

namespace muster::commands {

uint64_t CommandLog::Append(Kind kind) {
  commands_.push_back({.number = commands_.size() + 1, .kind = kind});
  return commands_.size();
}

std::vector<Command> CommandLog::After(uint64_t newest) const {
  if (newest >= commands_.size()) return {};
  return {commands_.begin() + static_cast<int64_t>(newest), commands_.end()};
}

bool CommandLog::Applied(uint64_t number, uint64_t step) {
  if (number == 0 || number > commands_.size()) return false;
  Command& command = commands_[number - 1];
  if (command.applied_step.has_value()) return false;
  command.applied_step = step;
  return true;
}

}  // namespace muster::commands
