#include "coordinator/commands/command_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::commands {
namespace {

// Changes of the job's state stay in force.
bool ChangesState(Kind kind) {
  return kind == Kind::kSetTrainability || kind == Kind::kRefresh || kind == Kind::kSetLearningRate;
}

// A worker does these although its checkpoint has their number (worker/train/command_schedule.h): they keep it.
bool IsDoneAnew(Kind kind) {
  return kind == Kind::kStop || kind == Kind::kPause || kind == Kind::kResume ||
         kind == Kind::kSaveCheckpoint;
}

// A log is not made longer than this at once, whatever a checkpoint says.
constexpr uint64_t kMostLost = 1'000'000;

}  // namespace

const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kLost:
      return "lost";
    case Kind::kStop:
      return "stop";
    case Kind::kSetTrainability:
      return "set_trainability";
    case Kind::kRefresh:
      return "refresh";
    case Kind::kSaveCheckpoint:
      return "save_checkpoint";
    case Kind::kSetLearningRate:
      return "set_learning_rate";
    case Kind::kPause:
      return "pause";
    case Kind::kResume:
      return "resume";
    case Kind::kCancel:
      return "cancel";
    case Kind::kPlanTrainability:
      return "plan_trainability";
  }
  return "unknown";
}

uint64_t CommandLog::Append(Command command) {
  command.number = commands_.size() + 1;
  commands_.push_back(std::move(command));
  return commands_.size();
}

std::vector<std::pair<uint64_t, uint64_t>> CommandLog::GoOnAbove(uint64_t number, uint64_t known,
                                                                 absl::Time now) {
  std::vector<std::pair<uint64_t, uint64_t>> moved;
  if (number <= known || number > commands_.size() + kMostLost) return moved;
  std::vector<Command> fresh;
  for (uint64_t n = known + 1; n <= std::min<uint64_t>(number, commands_.size()); ++n) {
    const Command& command = commands_[n - 1];
    if (!command.outcome.has_value() && !command.applied_step.has_value() && !IsDoneAnew(command.kind)) {
      fresh.push_back(command);
    }
  }
  while (commands_.size() < number) {
    Append({.kind = Kind::kLost,
            .create_time = now,
            .outcome = Outcome{.time = now,
                               .code = absl::StatusCode::kDataLoss,
                               .reason = "OPERATION_LOST",
                               .message = "the coordinator's database was restored without it; what it changed before the "
                                          "checkpoint that the job goes on from is in force"}});
  }
  for (Command& command : fresh) {
    const uint64_t old_number = command.number;
    for (const auto& [from, to] : moved) {
      if (command.kind == Kind::kCancel && command.target == from) command.target = to;
    }
    moved.emplace_back(old_number, Append(std::move(command)));
    commands_[old_number - 1].outcome =
        Outcome{.time = now,
                .code = absl::StatusCode::kAborted,
                .reason = "OPERATION_RENUMBERED",
                .message = absl::StrCat("the coordinator's database was restored, and the job had another operation of this "
                                        "number; this one goes on as number ",
                                        moved.back().second)};
  }
  return moved;
}

bool CommandLog::IsBeingCancelled(uint64_t number) const {
  return std::any_of(commands_.begin(), commands_.end(), [&](const Command& command) {
    return command.kind == Kind::kCancel && command.target == number &&
           !command.outcome.has_value();
  });
}

const Command* CommandLog::Find(uint64_t number) const {
  return number == 0 || number > commands_.size() ? nullptr : &commands_[number - 1];
}

Delivery::When CommandLog::WhenOf(const Command& command) const {
  using When = Delivery::When;
  if (command.outcome.has_value() && command.outcome->code != absl::StatusCode::kOk) {
    return When::kNever;
  }
  // Also a stop that took effect before any worker could say so.
  if (!command.applied_step.has_value()) {
    return command.outcome.has_value() ? When::kNever : When::kAnew;
  }
  if (ChangesState(command.kind)) return When::kReplay;
  if (command.kind == Kind::kPause) return command.target != 0 ? When::kNever : When::kAnew;
  // Begun, but perhaps not ended.
  return command.outcome.has_value() ? When::kNever : When::kAnew;
}

std::vector<Delivery> CommandLog::After(uint64_t newest) const {
  std::vector<Delivery> deliveries;
  for (uint64_t i = newest; i < commands_.size(); ++i) {
    deliveries.push_back({commands_[i], WhenOf(commands_[i])});
  }
  return deliveries;
}

bool CommandLog::Applied(uint64_t number, uint64_t step) {
  if (Find(number) == nullptr) return false;
  Command& command = commands_[number - 1];
  if (command.applied_step.has_value() || command.outcome.has_value()) return false;
  command.applied_step = step;
  if (command.kind != Kind::kResume) return true;
  for (Command& other : commands_) {
    const bool in_force =
        other.kind == Kind::kPause && other.applied_step.has_value() && other.target == 0;
    if (in_force) other.target = number;
  }
  return true;
}

bool CommandLog::Finished(uint64_t number, Outcome outcome) {
  if (Find(number) == nullptr) return false;
  Command& command = commands_[number - 1];
  if (command.outcome.has_value()) return false;
  command.outcome = std::move(outcome);
  return true;
}

bool CommandLog::EndAll(const std::string& how, bool stopped, absl::Time now) {
  bool any = false;
  for (Command& command : commands_) {
    if (command.outcome.has_value()) continue;
    any = true;
    Outcome outcome{.time = now};
    const bool later = command.at_step.has_value() && !command.applied_step.has_value();
    const bool done = command.kind == Kind::kStop && stopped && !later;
    if (!done) {
      outcome.code = absl::StatusCode::kFailedPrecondition;
      outcome.reason = "JOB_ENDED";
      outcome.message = absl::StrCat(
          "the job ended (", how, ") before this was ",
          command.applied_step.has_value() ? "finished" : "carried out");
    }
    command.outcome = std::move(outcome);
  }
  return any;
}

bool CommandLog::PauseInForce() const {
  return std::any_of(commands_.begin(), commands_.end(), [](const Command& command) {
    return command.kind == Kind::kPause && command.applied_step.has_value() && command.target == 0;
  });
}

bool CommandLog::WillBePaused() const {
  bool paused = PauseInForce();
  for (const Command& command : commands_) {
    if (command.outcome.has_value() || command.applied_step.has_value()) continue;
    if (command.at_step.has_value()) continue;
    if (command.kind == Kind::kPause) paused = true;
    if (command.kind == Kind::kResume) paused = false;
  }
  return paused;
}

}  // namespace muster::commands
