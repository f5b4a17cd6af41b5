#include "coordinator/commands/command_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::commands {
namespace {

// The reason code of a command that was open when its job ended.
constexpr char kJobEnded[] = "JOB_ENDED";

// The largest accepted distance of a checkpoint's command number from the newest command. Above it
// no lost commands are added.
constexpr uint64_t kMostLost = 1'000'000;

}  // namespace

CommandLog::CommandLog(std::vector<Command> commands) : commands_(std::move(commands)) {
  for (const Command& command : commands_) {
    UpdateSets(command);
    contents_bytes_ += command.contents.size();
  }
}

std::vector<std::pair<uint64_t, uint64_t>> CommandLog::RenumberAbove(uint64_t number,
                                                                     uint64_t known,
                                                                     absl::Time now) {
  std::vector<std::pair<uint64_t, uint64_t>> moved;
  if (number <= known || number > newest() + kMostLost) return moved;
  std::vector<Command> fresh;
  for (uint64_t n = known + 1; n <= std::min<uint64_t>(number, commands_.size()); ++n) {
    const Command& command = commands_[n - 1];
    if (!command.outcome.has_value() && !command.applied_step.has_value() &&
        !IsDoneOnce(command.kind)) {
      fresh.push_back(command);
    }
  }
  while (commands_.size() < number) {
    Append(
        {.kind = v1::Operation::KIND_UNSPECIFIED,
         .create_time = now,
         .outcome = Outcome{
             .time = now,
             .code = absl::StatusCode::kDataLoss,
             .reason = "OPERATION_LOST",
             .message =
                 "the coordinator's database was restored without it; what it changed before the "
                 "checkpoint from which the job continues is in force"}});
  }
  for (Command& command : fresh) {
    const uint64_t old_number = command.number;
    for (const auto& [from, to] : moved) {
      if (command.kind == v1::Operation::CANCEL && command.target == from) command.target = to;
    }
    moved.emplace_back(old_number, Append(std::move(command)));
    Finished(
        old_number,
        {.time = now,
         .code = absl::StatusCode::kAborted,
         .reason = "OPERATION_RENUMBERED",
         .message = absl::StrCat(
             "the coordinator's database was restored, and the job had another operation of this "
             "number; this one continues as number ",
             moved.back().second)});
  }
  return moved;
}

void CommandLog::UpdateSets(const Command& command) {
  const auto update = [&](std::set<uint64_t>* set, bool in) {
    in ? (void)set->insert(command.number) : (void)set->erase(command.number);
  };
  const bool is_open = !command.outcome.has_value();
  const bool turns = command.kind == v1::Operation::PAUSE || command.kind == v1::Operation::RESUME;
  if (command.kind == v1::Operation::CANCEL && is_open != open_.contains(command.number)) {
    if (is_open) {
      being_cancelled_.insert(command.target);
    } else {
      being_cancelled_.erase(being_cancelled_.find(command.target));
    }
  }
  update(&open_, is_open);
  update(&pauses_in_force_, command.kind == v1::Operation::PAUSE &&
                                command.applied_step.has_value() && command.target == 0);
  update(&turns_to_come_,
         is_open && turns && !command.applied_step.has_value() && !command.at_step.has_value());
}

uint64_t CommandLog::Append(Command command) {
  command.number = newest() + 1;
  changed_.insert(command.number);
  contents_bytes_ += command.contents.size();
  commands_.push_back(std::move(command));
  UpdateSets(commands_.back());
  return newest();
}

const Command* CommandLog::Find(uint64_t number) const {
  return number == 0 || number > commands_.size() ? nullptr : &commands_[number - 1];
}

Delivery::When CommandLog::WhenOf(const Command& command) const {
  using When = Delivery::When;
  if (command.outcome.has_value() && command.outcome->code != absl::StatusCode::kOk) {
    return When::kNever;
  }
  // A stop may have an outcome although no worker reported that it took effect.
  if (!command.applied_step.has_value()) {
    return command.outcome.has_value() ? When::kNever : When::kWhenDue;
  }
  if (ChangesState(command.kind)) return command.target != 0 ? When::kNever : When::kReplay;
  if (command.kind == v1::Operation::PAUSE)
    return command.target != 0 ? When::kNever : When::kWhenDue;
  // A command that took effect may not be finished until it has an outcome.
  return command.outcome.has_value() ? When::kNever : When::kWhenDue;
}

std::optional<uint64_t> CommandLog::StepOf(const Command& command, Delivery::When when) const {
  if (when == Delivery::When::kNever) return std::nullopt;
  if (!command.applied_step.has_value()) return command.at_step;
  // A pause that took effect before, and that still lasts, takes effect at once.
  const bool at_its_step =
      when == Delivery::When::kReplay || WritesAFile(command.kind) || ChangesNothing(command.kind);
  return at_its_step ? command.applied_step : std::nullopt;
}

Delivery CommandLog::DeliveryOf(uint64_t number) const {
  const Command& command = commands_[number - 1];
  const Delivery::When when = WhenOf(command);
  return {command, when, StepOf(command, when)};
}

std::vector<Delivery> CommandLog::After(uint64_t newest) const {
  std::vector<Delivery> deliveries;
  for (uint64_t i = newest; i < commands_.size(); ++i) {
    deliveries.push_back(DeliveryOf(i + 1));
  }
  return deliveries;
}

uint32_t CommandLog::SinceProtocol() const {
  uint32_t newest = 0;
  for (const Command& command : commands_) {
    if (WhenOf(command) == Delivery::When::kNever) continue;
    newest = std::max(newest, RuleOf(command.kind).since_protocol());
  }
  return newest;
}

Command& CommandLog::Change(uint64_t number) {
  changed_.insert(number);
  return commands_[number - 1];
}

bool CommandLog::Applied(uint64_t number, uint64_t step) {
  const Command* known = Find(number);
  if (known == nullptr) return false;
  const bool overtaken = known->outcome.has_value() && known->outcome->reason == kJobEnded &&
                         ChangesState(known->kind);
  if (overtaken) {
    Change(number).outcome = Outcome{.time = known->outcome->time};
  } else if (known->applied_step.has_value() || known->outcome.has_value()) {
    return false;
  }
  if (!known->applied_step.has_value()) Change(number).applied_step = step;
  UpdateSets(*known);
  if (known->kind != v1::Operation::RESUME) return true;
  for (uint64_t pause : std::exchange(pauses_in_force_, {})) Change(pause).target = number;
  return true;
}

bool CommandLog::Finished(uint64_t number, Outcome outcome) {
  const Command* known = Find(number);
  if (known == nullptr || known->outcome.has_value()) return false;
  Change(number).outcome = std::move(outcome);
  UpdateSets(*known);
  return true;
}

void CommandLog::FinishTaken(uint64_t number, uint64_t step, absl::Time now) {
  const std::set<uint64_t> open = open_;
  for (uint64_t one : open) {
    const Command& command = *Find(one);
    const bool taken =
        one <= number && command.applied_step.has_value() && *command.applied_step <= step;
    if (taken && ChangesState(command.kind)) Finished(one, {.time = now});
  }
}

void CommandLog::Replace(v1::Operation::Kind kind, uint64_t by) {
  for (uint64_t number = 1; number < by && number <= newest(); ++number) {
    const Command& command = *Find(number);
    if (command.kind == kind && command.target == 0) Change(number).target = by;
  }
}

bool CommandLog::EndAll(const std::string& how, bool stopped, absl::Time now) {
  const std::set<uint64_t> open = open_;
  for (uint64_t number : open) {
    const Command& command = *Find(number);
    Outcome outcome{.time = now};
    const bool later = command.at_step.has_value() && !command.applied_step.has_value();
    const bool done = command.kind == v1::Operation::STOP && stopped && !later;
    if (!done) {
      outcome.code = absl::StatusCode::kFailedPrecondition;
      outcome.reason = kJobEnded;
      outcome.message = absl::StrCat("the job ended (", how, ") before this was ",
                                     command.applied_step.has_value() ? "finished" : "carried out");
    }
    Finished(number, std::move(outcome));
  }
  return !open.empty();
}

bool CommandLog::WillBePaused() const {
  if (turns_to_come_.empty()) return !pauses_in_force_.empty();
  return Find(*turns_to_come_.rbegin())->kind == v1::Operation::PAUSE;
}

}  // namespace muster::commands
