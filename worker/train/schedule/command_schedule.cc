#include "worker/train/schedule/command_schedule.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/overloaded/overloaded.h"

namespace muster::train {
namespace {

// What happens to a command whose generation ends before or after it took effect.
enum class Nature {
  kNothing,
  kChangesState,  // is repeated at the step at which it took effect
  kDoneOnce,      // is done once, at any step
  kCancels,
};

Nature NatureOf(const Command& command) {
  return std::visit(Overloaded{[](const NoCommand&) { return Nature::kNothing; },
                               [](const StopCommand&) { return Nature::kDoneOnce; },
                               [](const SaveCheckpointCommand&) { return Nature::kDoneOnce; },
                               [](const GatherOptimizerStateCommand&) { return Nature::kDoneOnce; },
                               [](const ConsolidateCommand&) { return Nature::kDoneOnce; },
                               [](const SetLearningRateCommand&) { return Nature::kChangesState; },
                               [](const SetTrainabilityCommand&) { return Nature::kChangesState; },
                               [](const RefreshCommand&) { return Nature::kChangesState; },
                               [](const RunStageCommand&) { return Nature::kDoneOnce; },
                               [](const SampleCommand&) { return Nature::kDoneOnce; },
                               [](const PauseCommand&) { return Nature::kDoneOnce; },
                               [](const ResumeCommand&) { return Nature::kDoneOnce; },
                               [](const CancelCommand&) { return Nature::kCancels; }},
                    command.what);
}

}  // namespace

const std::string* PathFor(const Command& command) {
  if (const auto* gather = std::get_if<GatherOptimizerStateCommand>(&command.what)) {
    return &gather->path;
  }
  const auto* consolidate = std::get_if<ConsolidateCommand>(&command.what);
  return consolidate == nullptr ? nullptr : &consolidate->path;
}

bool ChangesNothing(const Command& command) {
  return std::holds_alternative<RunStageCommand>(command.what) ||
         std::holds_alternative<SampleCommand>(command.what);
}

bool IsDoneOnce(const Command& command) { return NatureOf(command) == Nature::kDoneOnce; }

void CommandSchedule::TakeIn(const Command& command, int64_t step) {
  if (std::holds_alternative<NoCommand>(command.what)) return;
  if (const auto* cancel = std::get_if<CancelCommand>(&command.what)) {
    const auto target = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
      const bool leaves_nothing =
          PathFor(waiting.command) != nullptr || ChangesNothing(waiting.command);
      return waiting.command.number == cancel->target && !waiting.command.replay &&
             (!waiting.command.begun || leaves_nothing);
    });
    cancels_.push_back({command, target != waiting_.end()});
    if (target != waiting_.end()) waiting_.erase(target);
    return;
  }
  int64_t due = std::max(step, command.at_step.value_or(0));
  // Other commands do not wait: a job that is paused before the step of a replay must be able to
  // resume.
  if (NatureOf(command) == Nature::kChangesState) due = std::max(due, floor_);
  if (command.replay) {
    due = command.at_step.value_or(step);
    floor_ = std::max(floor_, due);
  }
  waiting_.push_back({due, command});
}

void CommandSchedule::TakeIn(int64_t newest, int64_t step, const Get& get) {
  while (taken_ < newest) {
    const Command command = get(++taken_);
    const bool in_checkpoint =
        taken_ <= restored_.taken &&
        !std::binary_search(restored_.waiting.begin(), restored_.waiting.end(), taken_);
    if (!in_checkpoint || IsDoneOnce(command)) TakeIn(command, step);
  }
}

std::optional<CommandSchedule::Due> CommandSchedule::Next(int64_t step) {
  if (!cancels_.empty()) {
    Due cancel = std::move(cancels_.front());
    cancels_.pop_front();
    return cancel;
  }
  // Of several commands with the earliest step, min_element returns the first, which has the lowest
  // number.
  const auto next =
      std::min_element(waiting_.begin(), waiting_.end(),
                       [](const Waiting& a, const Waiting& b) { return a.due < b.due; });
  if (next == waiting_.end() || next->due > step) return std::nullopt;
  Due due{std::move(next->command)};
  waiting_.erase(next);
  return due;
}

CommandSchedule::Position CommandSchedule::position() const {
  Position position{.taken = std::max(taken_, restored_.taken)};
  for (const Waiting& waiting : waiting_) position.waiting.push_back(waiting.command.number);
  // Commands that were not taken in yet wait as the checkpoint says.
  for (const int64_t number : restored_.waiting) {
    if (number > taken_) position.waiting.push_back(number);
  }
  return position;
}

}  // namespace muster::train
