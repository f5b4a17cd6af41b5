#include "worker/train/schedule/command_schedule.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/commands/command_rule.h"
#include "common/overloaded/overloaded.h"

namespace muster::train {
namespace {

v1::Operation::Kind KindOf(const Command& command) {
  using Operation = v1::Operation;
  using Kind = v1::Operation::Kind;
  return std::visit(
      Overloaded{[](const NoCommand&) -> Kind { return Operation::KIND_UNSPECIFIED; },
                 [](const StopCommand&) -> Kind { return Operation::STOP; },
                 [](const SaveCheckpointCommand&) -> Kind { return Operation::SAVE_CHECKPOINT; },
                 [](const GatherOptimizerStateCommand&) -> Kind {
                   return Operation::GATHER_OPTIMIZER_STATE;
                 },
                 [](const ConsolidateCommand&) -> Kind { return Operation::CONSOLIDATE; },
                 [](const SetLearningRateCommand&) -> Kind { return Operation::SET_LEARNING_RATE; },
                 [](const SetTrainabilityCommand& set) -> Kind {
                   return set.dry_run ? Operation::PLAN_TRAINABILITY : Operation::SET_TRAINABILITY;
                 },
                 [](const RefreshCommand&) -> Kind { return Operation::REFRESH; },
                 [](const RunStageCommand&) -> Kind { return Operation::RUN_STAGE; },
                 [](const SampleCommand&) -> Kind { return Operation::SAMPLE; },
                 [](const PauseCommand&) -> Kind { return Operation::PAUSE; },
                 [](const ResumeCommand&) -> Kind { return Operation::RESUME; },
                 [](const CancelCommand&) -> Kind { return Operation::CANCEL; }},
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

bool IsDoneOnce(const Command& command) { return commands::IsDoneOnce(KindOf(command)); }

void CommandSchedule::TakeIn(const Command& command, int64_t step) {
  if (std::holds_alternative<NoCommand>(command.what)) return;
  if (const auto* cancel = std::get_if<CancelCommand>(&command.what)) {
    const auto target = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
      const bool can_still_end = commands::RuleOf(KindOf(waiting.command)).cancellable() ==
                                 v1::CommandRule::UNTIL_IT_IS_DONE;
      return waiting.command.number == cancel->target && !waiting.command.replay &&
             (!waiting.command.begun || can_still_end);
    });
    cancels_.push_back({command, target != waiting_.end()});
    if (target != waiting_.end()) waiting_.erase(target);
    return;
  }
  int64_t due = std::max(step, command.at_step.value_or(0));
  // Commands that are done once do not wait: a job that is paused before the step of a replay must
  // be able to resume.
  if (!IsDoneOnce(command)) due = std::max(due, floor_);
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
