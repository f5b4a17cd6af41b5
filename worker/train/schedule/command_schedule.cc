#include "worker/train/schedule/command_schedule.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "common/commands/command_rule.h"

namespace muster::train {
namespace {

// True for the natures DONE_ONCE and CHANGES_NOTHING (command_rule.proto). Such a command must be
// carried out even if a checkpoint includes it. For a command that is done, the coordinator sends a
// command that is over instead.
bool IsDoneOnce(const Command& command) { return commands::IsDoneOnce(commands::KindOf(command)); }

}  // namespace

const std::string* PathFor(const Command& command) {
  if (command.has_gather_optimizer_state()) return &command.gather_optimizer_state().file().path();
  return command.has_consolidate() ? &command.consolidate().folder().path() : nullptr;
}

void CommandSchedule::TakeIn(const Command& command, int64_t step) {
  if (commands::IsOver(command)) return;
  if (command.has_cancel()) {
    const auto target = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
      const bool can_still_end =
          commands::RuleOf(waiting.command).cancellable() == v1::CommandRule::UNTIL_IT_IS_DONE;
      return waiting.command.number() == command.cancel().target() && !waiting.command.replay() &&
             (!waiting.command.begun() || can_still_end);
    });
    cancels_.push_back({command, target != waiting_.end()});
    if (target != waiting_.end()) waiting_.erase(target);
    return;
  }
  const auto at_step = static_cast<int64_t>(command.at_step());
  int64_t due = std::max(step, at_step);
  // Commands that are done once do not wait for a replay: a job that is paused before the step of
  // the replay must be able to resume.
  if (!IsDoneOnce(command)) due = std::max(due, floor_);
  if (command.replay()) {
    due = command.has_at_step() ? at_step : step;
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
  // min_element returns the first of several commands with the earliest step. It has the lowest
  // number.
  const bool holds_back = HoldsBackPauses(step);
  const auto next = std::min_element(
      waiting_.begin(), waiting_.end(), [&](const Waiting& a, const Waiting& b) {
        const bool a_held_back = holds_back && a.command.has_pause();
        const bool b_held_back = holds_back && b.command.has_pause();
        return std::tuple(a_held_back, a.due) < std::tuple(b_held_back, b.due);
      });
  if (next == waiting_.end() || next->due > step) return std::nullopt;
  if (holds_back && next->command.has_pause()) return std::nullopt;
  Due due{std::move(next->command)};
  waiting_.erase(next);
  return due;
}

bool CommandSchedule::HoldsBackPauses(int64_t step) const {
  const bool resumes = std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return waiting.command.has_resume() && waiting.due <= step;
  });
  const auto waits_for_its_step = [&](const Waiting& waiting) {
    return waiting.command.begun() && !waiting.command.replay() && waiting.due > step;
  };
  return !resumes && std::any_of(waiting_.begin(), waiting_.end(), waits_for_its_step);
}

CommandSchedule::Position CommandSchedule::position() const {
  Position position{.taken = std::max(taken_, restored_.taken)};
  for (const Waiting& waiting : waiting_)
    position.waiting.push_back(static_cast<int64_t>(waiting.command.number()));
  // A command that this session has not taken in waits if it waits in the checkpoint.
  for (const int64_t number : restored_.waiting) {
    if (number > taken_) position.waiting.push_back(number);
  }
  return position;
}

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
